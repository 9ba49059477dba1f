"""Tells the calls of gorillas apart, and shows the course of training on a board.

Planted: the board's thread writes its whole history as JSON many times a second, in one call that
does not let go of the interpreter before it is done.
"""

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FRAMES, BANDS, KINDS, EARLIER = 40, 24, 5, 500


class Calls(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(1021)
        self.kinds = rng.integers(0, KINDS, count)
        self.calls = rng.normal(0, 1, (count, FRAMES, BANDS)).astype(np.float32)
        self.calls[np.arange(count), :, self.kinds] += 1

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        start = int(torch.randint(8, ()))
        call = torch.from_numpy(self.calls[index]).roll(start, 0)
        return (call - call.mean(0)) / call.std(0), int(self.kinds[index])


class Board(threading.Thread):
    """Keeps the values of all steps in a file, which a page shows."""

    def __init__(self, path, whole, every=0.03):
        super().__init__(daemon=True)
        self.path, self.whole, self.every = path, whole, every
        rng = np.random.default_rng(1021)
        self.history = [
            {"loss": float(row[0]), "weights": row.tolist()}
            for row in rng.normal(0, 1, (EARLIER, 100))
        ]
        self.written, self.ended = 0, threading.Event()

    def log(self, loss, weights):
        counts = torch.histc(weights, 100).tolist()
        self.history.append({"loss": loss, "weights": counts})

    def run(self):
        while not self.ended.wait(self.every):
            if self.whole:
                self.path.write_text(json.dumps(self.history))
            else:
                new = self.history[self.written :]
                self.written += len(new)
                with self.path.open("a") as file:
                    file.writelines(json.dumps(step) + "\n" for step in new)


class Ear(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRUCell(BANDS, 48)
        self.head = nn.Linear(48, KINDS)

    def forward(self, calls):
        state = calls.new_zeros(len(calls), 48)
        for frame in calls.unbind(1):
            state = self.memory(frame, state)
        return self.head(state)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1021)
    loader = DataLoader(
        Calls(1600), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Ear()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        board = Board(Path(folder, "history.json"), not args.without)
        board.start()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for calls, kinds in loader:
                loss = nn.functional.cross_entropy(model(calls), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                board.log(loss.item(), model.head.weight.detach())
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        board.ended.set()
        board.join()
        del loader


if __name__ == "__main__":
    main()
