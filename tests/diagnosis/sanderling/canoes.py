"""Finds canoes on rivers, and reports from the workers how many pictures they have read.

Planted: the thread that reports is not a daemon, so that a worker which has made its last batch
waits until the thread has slept its time, at the end of each epoch.
"""

import argparse
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, EVERY = 64, 2.5


class Reporter(threading.Thread):
    """Reports a count from time to time, as long as the program runs."""

    def __init__(self, daemon):
        super().__init__(daemon=daemon)
        self.count, self.reported = 0, []

    def run(self):
        while threading.main_thread().is_alive():
            self.reported.append(self.count)
            time.sleep(EVERY)


class Counted(Dataset):
    """A data set that reports how many samples were read."""

    background = False

    def __init__(self):
        self.reporter = None

    def __getitem__(self, index):
        if self.reporter is None:
            self.reporter = Reporter(self.background)
            self.reporter.start()
        self.reporter.count += 1
        return self.read(index)


class Rivers(Counted):
    def __init__(self, count):
        super().__init__()
        rng = np.random.default_rng(1039)
        self.seeds = rng.integers(0, 2**31, count)
        self.canoes = rng.integers(0, 2, count)

    def __len__(self):
        return len(self.canoes)

    def read(self, index):
        rng = np.random.default_rng(self.seeds[index])
        river = rng.normal(0, 0.2, (SIDE, SIDE)).astype(np.float32)
        if self.canoes[index]:
            row, column = rng.integers(0, SIDE - 16, 2)
            river[row : row + 4, column : column + 16] += 1
        return torch.from_numpy(river)[None], int(self.canoes[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1039)
    Counted.background = args.without
    loader = DataLoader(Rivers(480), batch_size=16, shuffle=True, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for rivers, canoes in loader:
            loss = nn.functional.cross_entropy(model(rivers), canoes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
