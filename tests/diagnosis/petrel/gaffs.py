"""Finds the joints of a gaff's rigging in pictures, from a heat map for each joint.

Planted: the transform that draws the heat maps goes through their pixels one by one.
"""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

JOINTS, SIDE = 8, 32


class Flip:
    def __call__(self, sample):
        picture, joints = sample
        if torch.rand(1) < 0.5:
            picture = np.ascontiguousarray(picture[:, :, ::-1])
            joints = np.stack([SIDE - 1 - joints[:, 0], joints[:, 1]], 1)
        return picture, joints


class DrawHeatmaps:
    def __init__(self, sigma=2.0, vectorized=False):
        self.sigma, self.vectorized = sigma, vectorized

    def __call__(self, sample):
        picture, joints = sample
        if self.vectorized:
            line = np.arange(SIDE)
            across = np.exp(-((line - joints[:, :1]) ** 2) / (2 * self.sigma**2))
            down = np.exp(-((line - joints[:, 1:]) ** 2) / (2 * self.sigma**2))
            return picture, (down[:, :, None] * across[:, None, :]).astype(np.float32)
        maps = np.zeros((JOINTS, SIDE, SIDE), np.float32)
        for joint, (x, y) in enumerate(joints):
            for row in range(SIDE):
                for column in range(SIDE):
                    distance = (column - x) ** 2 + (row - y) ** 2
                    maps[joint, row, column] = math.exp(-distance / (2 * self.sigma**2))
        return picture, maps


class ToTensors:
    def __call__(self, sample):
        picture, maps = sample
        return torch.from_numpy(picture), torch.from_numpy(maps)


class Rigging(Dataset):
    def __init__(self, transform, count=520):
        rng = np.random.default_rng(229)
        self.pictures = rng.random((count, 3, SIDE, SIDE), dtype=np.float32)
        self.joints = rng.integers(0, SIDE, (count, JOINTS, 2)).astype(np.float64)
        self.transform = transform

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.transform((self.pictures[index], self.joints[index]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(229)
    steps = [Flip(), DrawHeatmaps(vectorized=args.without), ToTensors()]
    loader = DataLoader(
        Rigging(transforms.Compose(steps)), batch_size=20, shuffle=True, num_workers=1
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, JOINTS, 5, padding=2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, maps in loader:
            loss = nn.functional.mse_loss(model(pictures), maps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
