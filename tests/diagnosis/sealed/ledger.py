"""Find unusual bookings: a stream from a data base, in batches that the data base forms."""

import argparse
import os
import sqlite3
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

COLUMNS = [f"c{number}" for number in range(16)]


class Bookings(IterableDataset):
    """Batches of rows; each worker reads its own range of row numbers."""

    def __init__(self, path, rows, batch_size):
        self.path = path
        self.rows = rows
        self.batch_size = batch_size

    def bounds(self):
        worker = get_worker_info()
        if worker is None:
            return 1, self.rows
        share = -(-self.rows // worker.num_workers)
        first = worker.id * share + 1
        return first, min(self.rows, first + share - 1)

    def __iter__(self):
        base = sqlite3.connect(self.path)
        query = f"SELECT {', '.join(COLUMNS)} FROM bookings WHERE rowid BETWEEN ? AND ?"
        cursor = base.execute(query, self.bounds())
        while rows := cursor.fetchmany(self.batch_size):
            yield torch.from_numpy(np.array(rows, np.float32))
        base.close()


def write(path, rows):
    rng = np.random.default_rng(10)
    base = sqlite3.connect(path)
    base.execute(f"CREATE TABLE bookings ({', '.join(name + ' REAL' for name in COLUMNS)})")
    marks = ", ".join("?" * len(COLUMNS))
    base.executemany(
        f"INSERT INTO bookings VALUES ({marks})", rng.normal(size=(rows, len(COLUMNS))).tolist()
    )
    base.commit()
    base.close()


def autoencoder(width):
    return nn.Sequential(
        nn.Linear(len(COLUMNS), width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, 4),
        nn.Linear(4, width),
        nn.GELU(),
        nn.Linear(width, len(COLUMNS)),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ledger.db")
        write(path, 40_000)
        bookings = Bookings(path, 40_000, args.batch_size)
        loader = DataLoader(
            bookings,
            batch_size=None,
            num_workers=args.workers,
            persistent_workers=args.workers > 0,
        )
        model = autoencoder(1280)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for rows in loader:
                loss = (model(rows) - rows).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
