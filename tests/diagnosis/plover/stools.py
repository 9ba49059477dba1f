"""Learns what is said of stools, in small batches of which four make one step of the optimizer.

Nothing is planted: a recurrent network is the work. Two workers share the files of a stream,
shuffle it in a buffer and are ahead.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FILES, TEXTS, LENGTH, LETTERS, GATHERED = 6, 120, 96, 60, 4


def write_files(folder):
    rng = np.random.default_rng(599)
    paths = [Path(folder, f"{number}.npy") for number in range(FILES)]
    for path in paths:
        np.save(path, rng.integers(0, LETTERS, (TEXTS, LENGTH + 1), np.uint8))
    return paths


class Texts(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def read(self):
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers]:
            yield from np.load(path, mmap_mode="r")

    def __iter__(self):
        buffer = []
        for text in self.read():
            buffer.append(text)
            if len(buffer) > 40:
                yield torch.tensor(buffer.pop(random.randrange(len(buffer))))
        random.shuffle(buffer)
        yield from map(torch.tensor, buffer)


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(LETTERS, 96)
        self.states = nn.LSTM(96, 160, num_layers=2, batch_first=True)
        self.head = nn.Linear(160, LETTERS)

    def forward(self, letters):
        return self.head(self.states(self.embed(letters))[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(599)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Texts(write_files(folder)), batch_size=12, num_workers=2, persistent_workers=True
        )
        model = Writer()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            optimizer.zero_grad()
            for step, texts in enumerate(loader):
                texts = texts.long()
                scores = model(texts[:, :-1])
                loss = nn.functional.cross_entropy(scores.transpose(1, 2), texts[:, 1:])
                (loss / GATHERED).backward()
                if step % GATHERED == GATHERED - 1:
                    optimizer.step()
                    optimizer.zero_grad()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
