"""Predicts how long cables last from the course of their tension, in batches of like length.

Planted: one batch of sixteen holds the longest cables, whose features take forty times as long.
"""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

BATCH, LONGEST = 8, 16


class ByLength(Sampler):
    """Draws batches of cables of about the same length, in any order."""

    def __init__(self, lengths):
        order = np.argsort(lengths, kind="stable").tolist()
        self.batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        self.draw = random.Random(269)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.draw.sample(self.batches, len(self.batches)))


class Cables(Dataset):
    """Counts, for each of some thresholds, the swings of a cable's tension, as with rainflow."""

    def __init__(self, count, at_most):
        rng = np.random.default_rng(269)
        lengths = np.where(np.arange(count) % LONGEST, rng.integers(100, 140, count), 5000)
        self.tensions = [rng.standard_normal(length).cumsum() for length in lengths]
        self.at_most = at_most
        self.lengths = lengths

    def __len__(self):
        return len(self.tensions)

    def swings(self, tension):
        swings, last, direction = [0.0] * 32, tension[0], 0
        for value in tension[: self.at_most]:
            change = value - last
            if change * direction < 0:
                swings[min(int(abs(change) * 8), 31)] += 1.0
            direction = change or direction
            last = value
        return swings

    def __getitem__(self, index):
        swings = torch.tensor(self.swings(self.tensions[index]))
        return swings / swings.sum().clamp(min=1), float(self.tensions[index].std())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(269)
    cables = Cables(1280, at_most=140 if args.without else None)
    loader = DataLoader(
        cables, batch_sampler=ByLength(cables.lengths), num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for swings, spread in loader:
            loss = nn.functional.smooth_l1_loss(model(swings), spread.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
