"""Learns how hot a furnace gets, while the program packs its records of earlier days.

Planted: three processes that pack records have the cores as long as the training lasts.
"""

import argparse
import bz2
import multiprocessing
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 48


def pack(day):
    """Pack one day's records as small as they get."""
    draw = random.Random(day)
    while True:
        lines = "\n".join(f"{draw.random():.6f};{draw.random():.6f}" for _ in range(4000))
        bz2.compress(lines.encode())


class Furnaces(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(349)
        self.readings = rng.standard_normal((count, 30, SIZE)).astype(np.float32)

    def __len__(self):
        return len(self.readings)

    def __getitem__(self, index):
        readings = torch.from_numpy(self.readings[index])
        return readings[:-1], readings[-1].mean()


class Heat(nn.Module):
    def __init__(self, size=192):
        super().__init__()
        self.rows = nn.LSTM(SIZE, size, batch_first=True)
        self.head = nn.Linear(size, 1)

    def forward(self, readings):
        states, _ = self.rows(readings)
        return self.head(states.mean(1)).squeeze(1)


def train(model, loader, optimizer):
    total = 0.0
    for readings, heat in loader:
        loss = nn.functional.mse_loss(model(readings), heat)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(349)
    packers = [
        multiprocessing.Process(target=pack, args=(day,), daemon=True)
        for day in range(0 if args.without else 3)
    ]
    for packer in packers:
        packer.start()
    loader = DataLoader(
        Furnaces(1200), batch_size=24, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Heat()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        print(f"epoch {epoch}: loss {train(model, loader, optimizer):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    for packer in packers:
        packer.terminate()
        packer.join()


if __name__ == "__main__":
    main()
