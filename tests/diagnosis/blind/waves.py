"""Train a small network on waves that the workers synthesise."""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        t = np.linspace(0, 1, 2048)
        wave = np.zeros_like(t)
        for harmonic in range(1, 24):
            wave += np.sin(2 * math.pi * harmonic * (index % 40 + 1) * t) / harmonic
        return wave.astype(np.float32), index % 40


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1 if args.without else 2)

    model = nn.Sequential(
        nn.Linear(2048, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 40)
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loader = DataLoader(Waves(3200), batch_size=32, shuffle=True, num_workers=args.workers)
    begin = time.perf_counter()
    for wave, label in loader:
        loss = nn.functional.cross_entropy(model(wave), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
