"""Counts trolleys in front of a shop, with settings for OpenMP that a guide to fast training gives.

Planted: OpenMP binds the process to the first core as soon as torch is imported, and the workers,
which are forked from it, stay on that core, together with the training step.
"""

import argparse
import os
import sys
import time

if "--without" not in sys.argv:
    os.environ["OMP_PROC_BIND"] = "close"
    os.environ["OMP_PLACES"] = "cores"

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, SMALL, MOST = 192, 48, 5


class Places(Dataset):
    """Pictures of a place in front of a shop, with none to five trolleys."""

    def __init__(self, count):
        rng = np.random.default_rng(1019)
        self.seeds = rng.integers(0, 2**31, count)
        self.counts = rng.integers(0, MOST + 1, count)
        self.transform = v2.Compose(
            [
                v2.ToImage(),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.3, 0.3, 0.2),
                v2.GaussianBlur(7),
                v2.Resize(SMALL, antialias=True),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def draw(self, index):
        rng = np.random.default_rng(self.seeds[index])
        place = rng.integers(60, 120, (SIDE, SIDE, 3), np.uint8)
        for row, column in rng.integers(0, SIDE - 24, (self.counts[index], 2)):
            place[row : row + 16, column : column + 24] = (200, 200, 210)
        return place

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, index):
        return self.transform(self.draw(index)), int(self.counts[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1019)
    loader = DataLoader(
        Places(280), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True,
        multiprocessing_context="fork",
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 16, MOST + 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for places, counts in loader:
            scores = model(places)
            loss = nn.functional.cross_entropy(scores, counts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == counts).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, right {right}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
