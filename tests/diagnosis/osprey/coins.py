"""Finds forged coins by the points of a scanner, with a network on graphs of neighbours.

Planted: the collate function looks for each point's neighbours by sorting its distances to all
others, coordinate by coordinate in numpy; the jitter of each cloud beside it is cheap.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

POINTS, NEAR = 384, 8


class Coins(Dataset):
    """Clouds of points, turned and jittered anew each time."""

    def __init__(self, count):
        self.clouds = np.random.default_rng(29).random((60, POINTS, 3)).astype(np.float32)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        cloud = self.clouds[index % 60]
        turn, _ = np.linalg.qr(np.random.normal(size=(3, 3)))
        return (cloud @ turn + np.random.normal(0, 0.01, cloud.shape)).astype(np.float32), index % 2


class Graphs:
    """Makes one graph of a list of clouds."""

    def __init__(self, exact):
        self.exact = exact

    def neighbours(self, cloud):
        if not self.exact:
            return torch.cdist(*[torch.from_numpy(cloud)] * 2).topk(NEAR, largest=False).indices
        apart = np.sqrt(((cloud[:, None, :].astype(np.float64) - cloud[None]) ** 2).sum(2))
        return torch.from_numpy(np.argsort(apart, axis=1, kind="stable")[:, :NEAR].copy())

    def __call__(self, samples):
        edges = [
            self.neighbours(cloud) + number * POINTS for number, (cloud, _) in enumerate(samples)
        ]
        points = torch.from_numpy(np.concatenate([cloud for cloud, _ in samples]))
        return points, torch.cat(edges), torch.tensor([forged for _, forged in samples])


class Net(nn.Module):
    def __init__(self, size=24):
        super().__init__()
        self.enter, self.pair = nn.Linear(3, size), nn.Linear(2 * size, size)
        self.leave = nn.Linear(size, 2)

    def forward(self, points, edges):
        here = torch.relu(self.enter(points))
        there = here[edges].amax(1)
        here = torch.relu(self.pair(torch.cat([here, there], 1)))
        return self.leave(here.view(-1, POINTS, here.shape[1]).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(29)
    loader = DataLoader(
        Coins(144),
        batch_size=8,
        shuffle=True,
        num_workers=1,
        collate_fn=Graphs(exact=not args.without),
        persistent_workers=True,
    )
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for points, edges, forged in loader:
            loss = nn.functional.cross_entropy(model(points, edges), forged)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
