"""Learns the age of ostriches from scans of their bones, slices of which lie in a data base."""

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

SCANS, DEPTH, SIDE, BATCH = 128, 6, 40, 8


def write_scans(path):
    rng = np.random.default_rng(173)
    ages = rng.uniform(0, 1, SCANS)
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE scans (number INTEGER PRIMARY KEY, age REAL, slices BLOB)")
    for number, age in enumerate(ages):
        slices = rng.normal(age, 0.5, (DEPTH, SIDE, SIDE)).astype(np.float16)
        base.execute("INSERT INTO scans VALUES (?, ?, ?)", (number, age, slices.tobytes()))
    base.commit()
    base.close()
    return ages


class Scans(Dataset):
    def __init__(self, path):
        self.path, self.base = path, None

    def __len__(self):
        return SCANS

    def __getitem__(self, index):
        if self.base is None:
            self.base = sqlite3.connect(self.path)
        question = "SELECT age, slices FROM scans WHERE number = ?"
        age, blob = self.base.execute(question, (int(index),)).fetchone()
        slices = np.frombuffer(blob, np.float16).reshape(DEPTH, SIDE, SIDE)
        return torch.from_numpy(slices.astype(np.float32)), float(age)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(173)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(DEPTH, 48, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(48, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scans.sqlite")
        ages = write_scans(path)
        loader = DataLoader(
            Scans(path),
            batch_size=BATCH,
            sampler=WeightedRandomSampler(0.2 + ages, SCANS),
            num_workers=2,
            persistent_workers=True,
            prefetch_factor=4,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for slices, targets in loader:
                loss = nn.functional.mse_loss(model(slices).squeeze(1), targets.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
