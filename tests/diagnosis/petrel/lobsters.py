"""Finds lobster pots in pictures of the sea floor, and counts a confusion matrix as it trains.

Planted: each step adds to the matrix pixel by pixel, with two `.item()` for each.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES, SIDE = 4, 24


class SeaFloor(Dataset):
    """Pictures of the sea floor with a class for each pixel."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.pictures = rng.random((count, 3, SIDE, SIDE), dtype=np.float32)
        self.masks = (self.pictures.mean(1) * CLASSES).astype(np.int64)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return torch.from_numpy(self.pictures[index]), torch.from_numpy(self.masks[index])


class ConfusionMatrix:
    def __init__(self, quick):
        self.counts = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
        self.quick = quick

    def update(self, found, truth):
        if self.quick:
            pairs = truth.flatten() * CLASSES + found.flatten()
            self.counts += torch.bincount(pairs, minlength=CLASSES**2).view(CLASSES, CLASSES)
            return
        for was, became in zip(truth.flatten(), found.flatten(), strict=True):
            self.counts[was.item(), became.item()] += 1

    def mean_iou(self):
        hits = self.counts.diag().float()
        union = self.counts.sum(0) + self.counts.sum(1) - hits
        return (hits / union.clamp(min=1)).mean()


def train(model, loader, optimizer, matrix):
    model.train()
    for pictures, masks in loader:
        scores = model(pictures)
        loss = nn.functional.cross_entropy(scores, masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        matrix.update(scores.argmax(1), masks)
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(201)
    loader = DataLoader(
        SeaFloor(480, 201), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, CLASSES, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        matrix = ConfusionMatrix(quick=args.without)
        loss = train(model, loader, optimizer, matrix)
        print(f"epoch {epoch}: loss {loss:.3f}, IoU {matrix.mean_iou():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
