"""Lights of buoys out of a data base of nights, read night by night through SQLite."""

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NIGHTS, FLASHES = 1000, 80


def write_nights(path, indexed, seed=17):
    rng = np.random.default_rng(seed)
    order = rng.permutation(NIGHTS * FLASHES)
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE flash (night INTEGER, second REAL, strength REAL)")
        base.executemany(
            "INSERT INTO flash VALUES (?, ?, ?)",
            ((int(place) % NIGHTS, float(place) / 7, float(place % 11)) for place in order),
        )
        if indexed:
            base.execute("CREATE INDEX flash_night ON flash (night)")
    base.close()


class Nights(Dataset):
    def __init__(self, path):
        self.path, self.base = path, None

    def __len__(self):
        return NIGHTS

    def query(self, night):
        if self.base is None:
            self.base = sqlite3.connect(self.path)
        return self.base.execute(
            "SELECT second, strength FROM flash WHERE night = ? ORDER BY second", (night,)
        ).fetchall()

    def __getitem__(self, index):
        flashes = torch.tensor(self.query(index), dtype=torch.float32)
        flashes = flashes + 0.01 * torch.randn_like(flashes)
        return (flashes - flashes.mean(0)) / flashes.std(0), index % 8


class Lights(nn.Module):
    def __init__(self, size=48):
        super().__init__()
        self.inner = nn.Linear(2, size)
        self.layer = nn.TransformerEncoderLayer(size, 4, 96, batch_first=True)
        self.head = nn.Linear(size, 8)

    def forward(self, flashes):
        return self.head(self.layer(self.inner(flashes)).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "nights.sqlite")
        write_nights(path, indexed=args.without)
        loader = DataLoader(
            Nights(path), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
        )
        model = Lights()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for flashes, lights in loader:
                loss = nn.functional.cross_entropy(model(flashes), lights)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
