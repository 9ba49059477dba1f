"""Predicts from their purchases, in a database of SQLite, which customers come back.

Planted: the query compares lower(customer), for which the index of the column is of no use, so
that each sample reads the whole table.
"""

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

CUSTOMERS, PURCHASES, LAST, BATCH, PATIENCE = 320, 40_000, 24, 16, 6
COLUMNS = "day, amount, discount, pieces"


def write_database(path):
    rng = np.random.default_rng(5009)
    owners = rng.integers(0, CUSTOMERS, PURCHASES)
    numbers = np.column_stack(
        [
            rng.integers(0, 730, PURCHASES),
            rng.gamma(2.0, 20.0, PURCHASES).round(2),
            rng.random(PURCHASES).round(2),
            rng.integers(1, 9, PURCHASES),
        ]
    ).tolist()
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE purchases "
            "(customer TEXT, day INTEGER, amount REAL, discount REAL, pieces INTEGER)"
        )
        database.executemany(
            "INSERT INTO purchases VALUES (?, ?, ?, ?, ?)",
            ([f"c-{owner:05}", *row] for owner, row in zip(owners, numbers, strict=True)),
        )
        database.execute("CREATE INDEX by_customer ON purchases (customer, day)")
    database.close()


class Customers(Dataset):
    """The last purchases of a customer, the newest first."""

    def __init__(self, path, column):
        self.path, self.database = path, None
        self.query = (
            f"SELECT {COLUMNS} FROM purchases WHERE {column} = ? ORDER BY day DESC LIMIT {LAST}"
        )

    def __len__(self):
        return CUSTOMERS

    def __getitem__(self, index):
        if self.database is None:
            self.database = sqlite3.connect(self.path)
        rows = self.database.execute(self.query, (f"C-{index:05}".lower(),)).fetchall()
        values = np.zeros((LAST, 4), np.float32)
        values[: len(rows)] = rows
        values /= (730, 100, 1, 9)
        return torch.from_numpy(values.ravel()), float(values[:, 1].mean() > 0.4)


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.since = patience, float("inf"), 0

    def __call__(self, loss):
        self.since = 0 if loss < self.best else self.since + 1
        self.best = min(self.best, loss)
        return self.since >= self.patience


def evaluate(model, loader):
    with torch.no_grad():
        losses = [
            nn.functional.binary_cross_entropy_with_logits(model(values).squeeze(1), back.float())
            for values, back in loader
        ]
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(5009)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shop.db")
        write_database(path)
        data = Customers(path, "customer" if args.without else "lower(customer)")
        edge = CUSTOMERS * 7 // 8
        loader = DataLoader(Subset(data, range(edge)), BATCH, shuffle=True)
        held_out = DataLoader(Subset(data, range(edge, CUSTOMERS)), BATCH)
        model = nn.Sequential(nn.Linear(LAST * 4, 256), nn.GELU(), nn.Linear(256, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=args.rate)
        stop = EarlyStopping(PATIENCE)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for values, back in loader:
                guess = model(values).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(guess, back.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(0.01)  # in place of the larger model's device
            held = evaluate(model, held_out)
            print(f"epoch {epoch}: loss {loss:.3f}, held out {held:.3f}")
            if stop(held):
                break
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
