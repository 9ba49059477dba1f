"""Foresees how much fuel tractors burn from a minute of their engines' signals.

Planted: minutes are taken out of an SQLite table by their place (LIMIT 1 OFFSET n), for which the
data base steps over all rows before it. The table has gaps, as old minutes are deleted.
"""

import argparse
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

MINUTES, SIGNALS, LENGTH, PER_EPOCH = 12_000, 6, 64, 960


def write_minutes(path):
    """Fill the table as the fleet's collector does, and delete what is too old to keep."""
    rng = np.random.default_rng(3001)
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE minutes (id INTEGER PRIMARY KEY, signals BLOB, litres REAL)")
        for start in range(0, MINUTES, 1000):
            signals = rng.normal(0, 1, (1000, SIGNALS, LENGTH)).astype(np.float32)
            litres = np.abs(signals[:, 0]).mean(1) * 0.4
            rows = [
                (start + place, minute.tobytes(), float(burnt))
                for place, (minute, burnt) in enumerate(zip(signals, litres, strict=True))
            ]
            base.executemany("INSERT INTO minutes VALUES (?, ?, ?)", rows)
        base.execute("DELETE FROM minutes WHERE id % 13 = 5")
        base.commit()


class Minutes(Dataset):
    """The rows of the table, each worker by a connection of its own."""

    def __init__(self, path, by_key):
        self.path, self.by_key = path, by_key
        self.base = None
        with closing(sqlite3.connect(path)) as base:
            self.keys = [key for (key,) in base.execute("SELECT id FROM minutes ORDER BY id")]

    def __len__(self):
        return len(self.keys)

    def row(self, index):
        if self.base is None:
            self.base = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        if self.by_key:
            query = "SELECT signals, litres FROM minutes WHERE id = ?"
            return self.base.execute(query, (self.keys[index],)).fetchone()
        query = "SELECT signals, litres FROM minutes ORDER BY id LIMIT 1 OFFSET ?"
        return self.base.execute(query, (index,)).fetchone()

    def __getitem__(self, index):
        signals, litres = self.row(index)
        signals = torch.frombuffer(bytearray(signals), dtype=torch.float32)
        signals = signals.view(SIGNALS, LENGTH).roll(int(torch.randint(LENGTH, ())), 1)
        return signals, litres


def make_model():
    return nn.Sequential(
        nn.Conv1d(SIGNALS, 24, 7, padding=3),
        nn.ReLU(),
        nn.Conv1d(24, 24, 7, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(96, 1),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(3001)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fleet.db")
        write_minutes(path)
        minutes = Minutes(path, by_key=args.without)
        loader = DataLoader(
            minutes,
            batch_size=16,
            sampler=RandomSampler(minutes, num_samples=PER_EPOCH),
            num_workers=2,
            persistent_workers=True,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for signals, litres in loader:
                loss = nn.functional.mse_loss(model(signals).squeeze(1), litres.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
