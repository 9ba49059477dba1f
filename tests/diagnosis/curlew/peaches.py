"""Finds bruises on peaches, and gathers from the workers how bright each picture was.

Planted: the workers put each picture's brightness into a queue that is read only after the epoch,
and a worker cannot end before what it has put there has been read.
"""

import argparse
import multiprocessing
import queue
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 40


class Peaches(Dataset):
    """Pictures of peaches; a record of each one that was used goes to `records`."""

    def __init__(self, count, short):
        rng = np.random.default_rng(769)
        self.pictures = rng.integers(0, 256, (count, SIDE, SIDE), np.uint8)
        self.bruised = rng.integers(0, 2, count)
        self.records, self.short = None, short

    def __len__(self):
        return len(self.bruised)

    def __getitem__(self, index):
        picture = self.pictures[index].astype(np.float32) / 255
        rows = picture.mean(1)
        record = float(rows.mean()) if self.short else rows.tolist()
        self.records.put((index, record))
        return torch.from_numpy(picture)[None], int(self.bruised[index])


def summary(records):
    """Return how many records there are, and the brightest picture's brightness."""
    found = []
    while True:
        try:
            found.append(records.get(timeout=0.02))
        except queue.Empty:
            break
    means = [float(np.mean(record)) for _, record in found]
    return len(means), max(means, default=0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(769)
    peaches = Peaches(1200, args.without)
    loader = DataLoader(
        peaches, batch_size=16, shuffle=True, num_workers=1,
        multiprocessing_context="fork",
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 5), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 14 * 14, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        peaches.records = multiprocessing.get_context("fork").Queue()
        for pictures, bruised in loader:
            loss = nn.functional.cross_entropy(model(pictures), bruised)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        count, brightest = summary(peaches.records)
        print(f"epoch {epoch}: loss {loss:.3f}, brightest of {count}: {brightest:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
