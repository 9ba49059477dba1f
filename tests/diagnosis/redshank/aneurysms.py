"""Marks aneurysms on the walls of arteries, which are clouds of points."""

import argparse
import random
import time

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torchvision import transforms

PATIENTS, POINTS, NEAR, BATCH = 30, 800, 12, 4


def vessel(rng):
    """A bent tube with a bulge; points on the bulge are marked."""
    along, around = rng.uniform(0, 10, POINTS), rng.uniform(0, 2 * np.pi, POINTS)
    place = rng.uniform(2, 8)
    width = 1 + 1.5 * np.exp(-((along - place) ** 2))
    cloud = np.stack([along, width * np.cos(around), width * np.sin(around) + np.sin(along)], 1)
    return cloud.astype(np.float32), (abs(along - place) < 1).astype(np.float32)


class Turned:
    def __call__(self, cloud):
        angle = random.uniform(-0.5, 0.5)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        return np.concatenate([cloud[:, :1], cloud[:, 1:] @ turn.astype(np.float32)], 1)


class Shaken:
    def __call__(self, cloud):
        return cloud + np.random.normal(0, 0.02, cloud.shape).astype(np.float32)


class Arteries(IterableDataset):
    def __init__(self, transform, tree, rounds):
        rng = np.random.default_rng(19)
        self.vessels = [vessel(rng) for _ in range(PATIENTS)]
        self.transform, self.tree, self.rounds = transform, tree, rounds

    def neighbours(self, cloud):
        if self.tree:
            return cKDTree(cloud).query(cloud, NEAR)[1]
        distance = ((cloud[:, None] - cloud[None]) ** 2).sum(2)
        return np.argsort(distance, axis=1)[:, :NEAR]

    def __iter__(self):
        for _ in range(self.rounds):
            for cloud, marks in random.sample(self.vessels, PATIENTS):
                points = self.transform(cloud)
                near = points[self.neighbours(points)] - points[:, None]
                yield torch.from_numpy(points), torch.from_numpy(near), torch.from_numpy(marks)


class Walls(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.edges = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width))
        self.points = nn.Sequential(nn.Linear(width + 3, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, points, near):
        around = self.edges(near).amax(2)
        return self.points(torch.cat([points, around], 2))[..., 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(19)
    transform = transforms.Compose([Turned(), Shaken()])
    loader = DataLoader(Arteries(transform, args.without, rounds=4), BATCH)
    model = Walls()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for points, near, marks in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(points, near), marks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
