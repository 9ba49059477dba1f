"""Tells pliers apart by their outlines; a batch holds a tool and those that look most like it.

Planted: the batch sampler measures how far every outline is from the first one of a batch, and
sorts all of them, for each batch, in the main process.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

OUTLINES, POINTS, BATCH, KINDS = 40_000, 96, 24, 30


class Outlines(Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(479)
        self.points = torch.rand(OUTLINES, POINTS, generator=draw)
        self.kinds = torch.randint(KINDS, (OUTLINES,), generator=draw)

    def __len__(self):
        return OUTLINES

    def __getitem__(self, index):
        points = self.points[index]
        for _ in range(2):  # smooth it, and turn it to a new beginning
            points = (points + points.roll(1) + points.roll(-1)) / 3
        return points.roll(index % POINTS), self.kinds[index]


class LookAlikes:
    """Yields batches: an outline, and the ones that are nearest to it."""

    def __init__(self, points, batches, groups=None):
        self.points, self.batches, self.groups = points, batches, groups

    def __len__(self):
        return self.batches

    def nearest(self, first):
        apart = (self.points - self.points[first]).abs().sum(1)
        return apart.argsort()[:BATCH].tolist()

    def __iter__(self):
        for first in torch.randint(OUTLINES, (self.batches,)).tolist():
            if self.groups is None:
                yield self.nearest(first)
            else:
                yield self.groups[first % len(self.groups)]


class Embedding(nn.Module):
    def __init__(self, size=192):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(POINTS, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU()
        )
        self.head = nn.Linear(size, KINDS)

    def forward(self, points):
        return self.head(nn.functional.normalize(self.layers(points), dim=1) * 8)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(479)
    outlines = Outlines()
    sampler = LookAlikes(outlines.points, 150)
    if args.without:  # the same kind of batches, worked out before
        sampler.groups = [sampler.nearest(first) for first in range(40)]
    loader = DataLoader(outlines, batch_sampler=sampler, num_workers=2, persistent_workers=True)
    model = Embedding()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for points, kinds in loader:
            loss = nn.functional.cross_entropy(model(points), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
