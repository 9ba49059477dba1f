"""Predicts the level behind sluices from a table in one file, as with a reader that is not safe.

Planted: one lock of all four workers is held while a row is read from a slow store.
"""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOURS = 96
LATENCY = 0.004  # of the store on which the file lies


class Table:
    """Rows of a file, one seek and one read each."""

    def __init__(self, path):
        self.file = open(path, "rb")  # noqa: SIM115

    def row(self, number):
        self.file.seek(number * HOURS * 4)
        time.sleep(LATENCY)
        return np.frombuffer(self.file.read(HOURS * 4), np.float32)


class Sluices(Dataset):
    def __init__(self, path, count, lock):
        self.path, self.count, self.lock = path, count, lock
        self.table = None

    def __len__(self):
        return self.count

    def read(self, index):
        if self.table is None:
            self.table = Table(self.path)
        return self.table.row(index)

    def __getitem__(self, index):
        if self.lock is None:
            row = self.read(index)
        else:
            with self.lock:
                row = self.read(index)
        hours = torch.from_numpy(row.copy())
        return (hours[:-1] - hours.mean()) / (hours.std() + 1e-6), hours[-1]


def write_table(path, count):
    rng = np.random.default_rng(241)
    rng.standard_normal((count, HOURS)).astype(np.float32).cumsum(1).tofile(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(241)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "levels.f32")
        write_table(path, 900)
        lock = None if args.without else multiprocessing.Lock()
        sluices = Sluices(path, 900, lock)
        loader = DataLoader(
            sluices, batch_size=18, shuffle=True, num_workers=4, persistent_workers=True
        )
        model = nn.Sequential(nn.Linear(HOURS - 1, 384), nn.ReLU(), nn.Linear(384, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for hours, level in loader:
                loss = nn.functional.mse_loss(model(hours).squeeze(1), level)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
