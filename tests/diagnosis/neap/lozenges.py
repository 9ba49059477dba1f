"""Learns the shapes of lozenges; shapes that were learnt badly are drawn more often."""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Lozenges(Dataset):
    """Outlines of lozenges, drawn in some strokes when they are asked for."""

    def __init__(self, count=150_000, points=100, strokes=10):
        self.count, self.points, self.strokes = count, points, strokes

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        width, height = 1 + index % 17, 1 + index % 23
        outline = [0.0] * (2 * self.points)
        for stroke in range(self.strokes):
            for point in range(self.points):
                turn = 2 * math.pi * (point + stroke / self.strokes) / self.points
                across, along = math.cos(turn), math.sin(turn)
                size = (abs(across) / width + abs(along) / height) * self.strokes
                outline[2 * point] += across / size
                outline[2 * point + 1] += along / size
        return torch.tensor(outline), torch.tensor([width / 17, height / 23])


class ByWeight(Sampler):
    """Draws indices by weight."""

    def __init__(self, weights, draws, at_once, seed=37):
        self.weights, self.draws, self.at_once = weights, draws, at_once
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.draws

    def __iter__(self):
        if self.at_once:
            shares = self.weights / self.weights.sum()
            yield from self.rng.choice(len(shares), self.draws, p=shares).tolist()
            return
        for _ in range(self.draws):
            shares = self.weights / self.weights.sum()
            yield int(self.rng.choice(len(shares), p=shares))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(37)
    shapes = Lozenges()
    weights = np.random.default_rng(37).random(len(shapes)) + 0.1
    loader = DataLoader(
        shapes, batch_size=16, sampler=ByWeight(weights, 960, args.without), num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(nn.Linear(200, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                          nn.Linear(256, 2))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for outlines, sizes in loader:
            loss = nn.functional.mse_loss(model(outlines), sizes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: last loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
