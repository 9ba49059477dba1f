"""Finds worn valves in series of pressures; two workers make features of them.

Planted: a helper binds the process to one core, so that a short measurement is steady, and is
called at the start; the workers inherit this, so that all of them share that core with the step.
"""

import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, CHANNELS = 4096, 6


def reproducible(seed, steady=True):
    """Seed what is random; `steady`: also let times vary less, for a benchmark."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    torch.set_num_threads(1)
    if steady and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


class Pressures(Dataset):
    def __init__(self, count):
        self.wear = np.random.default_rng(1151).random(count)
        self.beat = np.sin(np.arange(LENGTH) * 0.05)

    def __len__(self):
        return len(self.wear)

    def __getitem__(self, index):
        noise = np.random.default_rng(index).standard_normal((CHANNELS, LENGTH))
        series = self.beat + (0.2 + self.wear[index]) * noise
        bands = []
        for width in (256, 512, 1024):
            parts = series.reshape(CHANNELS, -1, width)
            power = np.abs(np.fft.rfft(parts * np.hanning(width))) ** 2
            bands.append(np.log1p(power).mean(1)[:, :100])
        features = np.concatenate(bands, 1).astype(np.float32)
        return torch.from_numpy(features), np.float32(self.wear[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    reproducible(1151, steady=not args.without)
    loader = DataLoader(
        Pressures(1800), batch_size=20, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(CHANNELS * 300, 256), nn.ReLU(), nn.Linear(256, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for features, wear in loader:
            loss = nn.functional.mse_loss(model(features).squeeze(1), wear)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
