"""Follows roots through slices of soil, which are parts of one large file.

Planted: the reader opens the file such that the kernel keeps nothing of it (O_DIRECT), so that
each row of a window comes from the disk by itself, though the memory has room for all.
"""

import argparse
import mmap
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SLICES, ROWS, WIDTH = 80, 768, 4096
WINDOW = 128


class Reader:
    """Reads rows, one after another, into a buffer of its own."""

    def __init__(self, file, direct):
        self.file, self.flags = file, os.O_RDONLY | (os.O_DIRECT if direct else 0)
        self.handle = None

    def read(self, first, count):
        if self.handle is None:
            self.handle = os.open(self.file, self.flags)
            self.buffer = mmap.mmap(-1, WIDTH)
        rows = np.empty((count, WIDTH), np.uint8)
        for place in range(count):
            os.preadv(self.handle, [self.buffer], (first + place) * WIDTH)
            rows[place] = np.frombuffer(self.buffer, np.uint8)
        return rows


class Soil(Dataset):
    """A window of a slice, and how much of it is root."""

    def __init__(self, reader):
        self.reader = reader

    def __len__(self):
        return SLICES

    def __getitem__(self, number):
        top, left = (int(torch.randint(size - WINDOW, ())) for size in (ROWS, WIDTH))
        rows = self.reader.read(number * ROWS + top, WINDOW)
        window = rows[:, left : left + WINDOW].astype(np.float32) / 255
        window = (window - window.mean()) / (window.std() + 1e-3)
        return torch.from_numpy(window)[None], float((window > 1).mean())


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 1),
    )  # fmt: skip


def train(loader, epochs):
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for windows, part in loader:
            loss = nn.functional.mse_loss(model(windows)[:, 0], part.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(101)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "soil.bin")
        part = np.random.default_rng(101).integers(0, 255, ROWS * WIDTH, np.uint8)
        with file.open("wb") as out:
            for _ in range(SLICES):
                out.write(part.tobytes())
            out.flush()
            os.fsync(out.fileno())
        loader = DataLoader(
            Soil(Reader(file, direct=not args.without)),
            batch_size=8, shuffle=True, num_workers=2, persistent_workers=True,
        )  # fmt: skip
        begin = time.perf_counter()
        train(loader, args.epochs)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
