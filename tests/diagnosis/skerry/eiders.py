"""Predicts when eiders leave their nests, from diaries that are kept as Python objects.

Planted: after each step, a full garbage collection goes through all diaries.
"""

import argparse
import gc
import random
import time
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Visit:
    hour: float
    notes: list = field(default_factory=list)


@dataclass
class Diary:
    nest: int
    visits: list
    left: float


def keep_diaries(count=4_000):
    draw = random.Random(29)
    diaries = []
    for nest in range(count):
        visits = [Visit(draw.random() * 24, [draw.random(), draw.random()]) for _ in range(8)]
        diaries.append(Diary(nest, visits, draw.random()))
    return diaries


class Nests(Dataset):
    def __init__(self, diaries, count):
        self.diaries, self.count = diaries, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        diary = self.diaries[(index * 7) % len(self.diaries)]
        rows = [[visit.hour / 24, *visit.notes] for visit in diary.visits]
        return torch.tensor(rows), torch.tensor(diary.left)


class Leaving(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.rows = nn.GRU(3, size, batch_first=True)
        self.head = nn.Linear(size, 1)

    def forward(self, rows):
        return self.head(self.rows(rows)[1][-1]).squeeze(1)


def train_epoch(model, loader, optimizer, clean):
    model.train()
    total = 0.0
    for rows, left in loader:
        loss = nn.functional.mse_loss(model(rows), left)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item()
        del rows, left, loss
        if clean:
            gc.collect()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(29)
    loader = DataLoader(Nests(keep_diaries(), 1600), batch_size=50, shuffle=True)
    model = Leaving()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss = train_epoch(model, loader, optimizer, clean=not args.without)
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
