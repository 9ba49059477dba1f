"""Lamps of lighthouses in long exposures, which lie on the disk as raw files."""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS, COLUMNS, PIECE = 512, 2048, 4096


def write_exposures(folder, count=40, seed=22):
    block = np.random.default_rng(seed).bytes(ROWS * COLUMNS * 2)
    for number in range(count):
        with open(folder / f"{number:03d}.raw", "wb") as file:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
    return sorted(folder.iterdir())


class Exposures(Dataset):
    """Crops (1, 64, 64). A shared machine's cache is to be left to others after a read."""

    def __init__(self, paths, count, polite):
        self.paths, self.count, self.polite = paths, count, polite

    def __len__(self):
        return self.count

    def read_rows(self, path, first):
        rows = []
        with open(path, "rb", buffering=0) as file:
            if self.polite:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for row in range(first, first + 64):
                content = os.pread(file.fileno(), PIECE, row * COLUMNS * 2)
                rows.append(np.frombuffer(content, np.uint16))
            if self.polite:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return np.stack(rows)

    def __getitem__(self, index):
        chance = np.random.default_rng(index)
        path = self.paths[chance.integers(len(self.paths))]
        rows = self.read_rows(path, int(chance.integers(ROWS - 64)))
        column = int(chance.integers(COLUMNS - 64))
        crop = rows[:, column : column + 64].astype(np.float32) / 65535
        return torch.from_numpy(crop - crop.mean())[None], index % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(22)
    with tempfile.TemporaryDirectory() as folder:
        data = Exposures(write_exposures(Path(folder)), count=1200, polite=not args.without)
        loader = DataLoader(
            data, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True
        )
        model = nn.Sequential(
            nn.Conv2d(1, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(4),
            nn.Conv2d(32, 32, 5),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 2),
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for crops, lamps in loader:
                loss = nn.functional.cross_entropy(model(crops), lamps)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
