"""Spectra of galaxies, smoothed by a Gaussian process in numpy within four workers."""

import argparse
import os
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VARIABLE = "OPENBLAS_NUM_THREADS"


class Spectra(Dataset):
    def __init__(self, count=256, channels=192):
        self.count = count
        place = np.linspace(0, 1, channels)
        apart = place[:, None] - place[None, :]
        self.kernel = np.exp(-((apart / 0.05) ** 2))

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        flux = rng.standard_normal(len(self.kernel))
        noise = np.diag(rng.uniform(0.1, 0.5, len(flux)))
        for _ in range(3):
            gain = self.kernel @ np.linalg.inv(self.kernel + noise)
            flux = gain @ flux
        return torch.from_numpy(flux.astype(np.float32)), int(index % 5)


def train(loader, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for flux, kind in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(flux), kind).backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    args = parser.parse_args()
    if args.without and VARIABLE not in os.environ:  # it is read when numpy is imported
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, VARIABLE: "1"})
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(192, 256), nn.ReLU(), nn.Linear(256, 5))
    loader = DataLoader(Spectra(), batch_size=16, shuffle=True, num_workers=4)
    begin = time.perf_counter()
    train(loader, model)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
