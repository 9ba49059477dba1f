"""Reads the smoke of chimneys from logs of many gauges, parsed in Python.

Planted: a profiler of Python, which was meant to be tried on the first worker only, was left on
in it, so that this one of three workers is far slower than the others.
"""

import argparse
import cProfile
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GAUGES, LINES = 12, 60
PROFILES = []


class Smoke(Dataset):
    """Texts of gauges; each sample parses one of them."""

    def __init__(self, count):
        draw = random.Random(53)
        self.texts = [
            "\n".join(
                " ".join(f"g{gauge}={draw.random():.3f}" for gauge in range(GAUGES))
                for _ in range(LINES)
            )
            for _ in range(40)
        ]
        self.count = count

    def __len__(self):
        return self.count

    def value(self, word):
        name, _, number = word.partition("=")
        return self.place(name), self.scale(float(number))

    def place(self, name):
        return int(name[1:])

    def scale(self, number):
        return min(max(number, 0.01), 0.99) * 2 - 1

    def __getitem__(self, index):
        rows = []
        for line in self.texts[index % 40].split("\n"):
            row = [0.0] * GAUGES
            for word in line.split():
                place, value = self.value(word)
                row[place] = value
            rows.append(row)
        return torch.tensor(rows), index % 3


def try_profiler(worker):
    if worker == 0:
        PROFILES.append(cProfile.Profile())
        PROFILES[0].enable()


def leave_alone(worker):
    random.seed(worker)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(53)
    loader = DataLoader(
        Smoke(3200),
        batch_size=24,
        shuffle=True,
        num_workers=3,
        worker_init_fn=leave_alone if args.without else try_profiler,
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Conv1d(LINES, 16, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
    model(torch.zeros(1, LINES, GAUGES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
