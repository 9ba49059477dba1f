"""Rates how hard a maze is, with a network that looks at distances between its junctions.

Planted: a transform finds all shortest paths with three nested loops in Python.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

JUNCTIONS, FAR = 44, 99


class ShortestPaths:
    def __init__(self, arrays):
        self.arrays = arrays

    def __call__(self, steps):
        if self.arrays:
            distances = steps.copy()
            for via in range(JUNCTIONS):
                through = distances[:, via, None] + distances[None, via]
                np.minimum(distances, through, out=distances)
            return distances
        distances = steps.tolist()
        for via in range(JUNCTIONS):
            for begin in range(JUNCTIONS):
                for end in range(JUNCTIONS):
                    length = distances[begin][via] + distances[via][end]
                    if length < distances[begin][end]:
                        distances[begin][end] = length
        return np.array(distances)


class ToBias:
    def __call__(self, distances):
        bias = -torch.from_numpy(np.minimum(distances, 20)).float() / 5
        return bias + 0.01 * torch.randn(JUNCTIONS, JUNCTIONS)


class Mazes(Dataset):
    def __init__(self, count, transform):
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        steps = np.full((JUNCTIONS, JUNCTIONS), FAR)
        ways = rng.integers(0, JUNCTIONS, (90, 2))
        steps[ways[:, 0], ways[:, 1]] = steps[ways[:, 1], ways[:, 0]] = 1
        np.fill_diagonal(steps, 0)
        return self.transform(steps), torch.tensor(index % 9 / 9)


class Rater(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(JUNCTIONS, 64) * 0.1)
        self.mixing = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.head = nn.Linear(64, 1)

    def forward(self, bias):
        states = self.places.expand(len(bias), -1, -1)
        for mix in self.mixing:
            scores = states @ states.transpose(1, 2) / 8 + bias
            states = states + torch.relu(mix(scores.softmax(2) @ states))
        return self.head(states.mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(439)
    mazes = Mazes(720, transforms.Compose([ShortestPaths(args.without), ToBias()]))
    loader = DataLoader(mazes, batch_size=12, shuffle=True, num_workers=2, persistent_workers=True)
    model = Rater()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for bias, ratings in loader:
            loss = nn.functional.mse_loss(model(bias), ratings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
