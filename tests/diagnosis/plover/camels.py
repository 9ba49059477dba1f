"""Forecasts how far a camel walks, while a thread keeps an eye on the machine.

Planted: the thread of a monitoring class sorts and joins all readings that it has, in Python and
without a pause, and the training has the interpreter only now and then.
"""

import argparse
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DAYS, KEPT = 60, 100_000


class Monitor:
    """Reads how busy the machine is, and keeps a summary of it that a page could show."""

    def __init__(self, pause):
        self.pause, self.page = pause, ""
        self.readings = np.random.default_rng(524).integers(0, 10**6, KEPT).tolist()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def read(self):
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        return int(fields[0]) % 10**6

    def summarize(self):
        ordered = sorted(self.readings)
        parts = [ordered[len(ordered) * part // 100] for part in range(100)]
        return " ".join(str(part) for part in [*parts, *ordered[-10_000:]])

    def watch(self):
        while not self.ended.wait(self.pause):
            self.readings = [*self.readings[1 - KEPT :], self.read()]
            self.page = self.summarize()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


class Walks(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(523)
        self.steps = rng.gamma(4, 5, (count, DAYS + 1)).astype(np.float32)

    def __len__(self):
        return len(self.steps)

    def __getitem__(self, index):
        days = self.steps[index]
        known = np.log1p(days[:-1])
        return torch.from_numpy(known - known.mean()), float(np.log1p(days[-1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(523)
    loader = DataLoader(Walks(2600), batch_size=26, shuffle=True)
    model = nn.Sequential(nn.Linear(DAYS, 512), nn.ReLU(), nn.Linear(512, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with Monitor(10 if args.without else 0):
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for days, after in loader:
                loss = nn.functional.mse_loss(model(days).squeeze(1), after.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
