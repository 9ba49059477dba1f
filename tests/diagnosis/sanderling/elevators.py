"""Foresees when an elevator fails, from how its cabin shook on some of its last journeys.

Planted: the class that reads the records tells the system after each one that it will not be needed
again, so that all of them come from the disk in each epoch, though they would fit into memory.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOUSES, JOURNEYS, VALUES, LAST, SAMPLES = 6, 1500, 4096, 24, 300


def write_records(folder):
    """Write a file of all journeys for each house, and return the paths."""
    rng = np.random.default_rng(1087)
    paths = [Path(folder, f"house-{house}.bin") for house in range(HOUSES)]
    for path in paths:
        with path.open("wb") as file:
            for _ in range(JOURNEYS // 100):
                rng.normal(0, 1, (100, VALUES)).astype(np.float32).tofile(file)
            file.flush()
            os.fsync(file.fileno())
    return paths


class Records:
    """Reads pieces of files, and leaves no trace of them in the system's cache."""

    def __init__(self, size, considerate=True):
        self.size, self.considerate = size, considerate

    def read(self, path, places):
        file = os.open(path, os.O_RDONLY)
        try:
            pieces = [os.pread(file, self.size, place * self.size) for place in places]
            if self.considerate:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
        return pieces


class Elevators(Dataset):
    def __init__(self, paths, records):
        rng = np.random.default_rng(1087)
        self.paths, self.records = paths, records
        self.houses = rng.integers(0, HOUSES, SAMPLES)
        self.journeys = rng.integers(0, JOURNEYS, (SAMPLES, LAST))
        self.fails = rng.integers(0, 2, SAMPLES)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        path = self.paths[self.houses[index]]
        pieces = self.records.read(path, self.journeys[index].tolist())
        shaking = np.stack([np.frombuffer(piece, np.float32)[:512] for piece in pieces])
        return torch.from_numpy(shaking), float(self.fails[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1087)
    model = nn.Sequential(
        nn.Conv1d(LAST, 16, 9, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten(),
        nn.Linear(128, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        records = Records(VALUES * 4, considerate=not args.without)
        loader = DataLoader(
            Elevators(write_records(folder), records), batch_size=10, shuffle=True, num_workers=2,
            persistent_workers=True,
        )  # fmt: skip
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for shaking, fails in loader:
                logits = model(shaking).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, fails.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
