"""Grades of oysters from their shells; rare grades are drawn as often as common ones."""

import argparse
import time
from collections import Counter

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Oysters(Dataset):
    def __init__(self, count=12_000):
        rng = np.random.default_rng(9)
        self.grades = np.minimum(rng.geometric(0.3, count), 9).tolist()
        self.shells = rng.normal(size=(64, 3, 36, 36)).astype(np.float32)

    def __len__(self):
        return len(self.grades)

    def __getitem__(self, index):
        grade = self.grades[index]
        shell = torch.from_numpy(self.shells[index % 64] + 0.1 * grade)
        return shell.roll(int(torch.randint(8, ())), 2), grade


class BalancedSampler(Sampler):
    """Numbers of samples, each grade as likely as the others."""

    def __init__(self, data, drawn, count_once):
        self.data, self.drawn, self.count_once = data, drawn, count_once

    def __len__(self):
        return self.drawn

    def weights(self):
        grades = self.data.grades
        if self.count_once:
            counts = Counter(grades)
            return [1 / counts[grade] for grade in grades]
        return [1 / grades.count(grade) for grade in grades]

    def __iter__(self):
        weights = torch.tensor(self.weights(), dtype=torch.double)
        yield from torch.multinomial(weights, self.drawn, replacement=True).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(9)
    data = Oysters()
    loader = DataLoader(
        data,
        batch_size=40,
        sampler=BalancedSampler(data, 2000, args.without),
        num_workers=2,
        persistent_workers=True,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(288, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for shells, grades in loader:
            loss = nn.functional.cross_entropy(model(shells), grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
