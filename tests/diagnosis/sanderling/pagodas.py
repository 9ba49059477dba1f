"""Tells the roofs of pagodas apart, while the runs of last week are packed.

Planted: before training, the script starts five programs that pack the files of earlier runs at the
strongest setting, and they have nearly all of the cores as long as training lasts.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, KINDS, RUNS = 40, 4, 5
PACK = """
import lzma, os, sys
while os.getppid() == int(sys.argv[2]):
    with open(sys.argv[1], "rb") as file:
        lzma.compress(file.read(), preset=9)
"""


class Archive:
    """Packs the files of earlier runs beside the training."""

    def __init__(self, folder, runs):
        rng = np.random.default_rng(1063)
        self.paths = [Path(folder, f"run-{number}.log") for number in range(runs)]
        for path in self.paths:
            path.write_bytes(rng.integers(60, 90, 400_000, np.uint8).tobytes())

    def __enter__(self):
        self.programs = [
            subprocess.Popen([sys.executable, "-c", PACK, str(path), str(os.getpid())])
            for path in self.paths
        ]
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.kill()
            program.wait()


class Roofs(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(1063)
        self.kinds = rng.integers(0, KINDS, count)
        self.roofs = rng.integers(0, 80, (count, SIDE, SIDE), np.uint8)
        rows, columns = np.ogrid[:SIDE, :SIDE]
        for roof, kind in zip(self.roofs, self.kinds, strict=True):
            roof[(rows * (kind + 1)) % SIDE > columns] += 100

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        roof = torch.from_numpy(self.roofs[index]).float() / 255
        if torch.rand(()) < 0.5:
            roof = roof.flip(1)
        return roof[None], int(self.kinds[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1063)
    loader = DataLoader(
        Roofs(800), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(1, 24, 5), nn.ReLU(), nn.Conv2d(24, 24, 5), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(24 * 64, KINDS),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder, Archive(folder, 0 if args.without else RUNS):
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for roofs, kinds in loader:
                loss = nn.functional.cross_entropy(model(roofs), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
