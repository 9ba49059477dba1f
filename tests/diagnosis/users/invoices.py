"""Classify invoices out of a database, which an importer keeps writing to."""

import argparse
import multiprocessing
import sqlite3
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def create(path, mode, count):
    with sqlite3.connect(path) as base:
        base.execute(f"PRAGMA journal_mode={mode}")
        base.execute("CREATE TABLE invoice (id INTEGER PRIMARY KEY, amounts BLOB, kind INTEGER)")
        rows = ((i, torch.arange(i % 50, i % 50 + 32.0).numpy().tobytes(), i % 5)
                for i in range(count))  # fmt: skip
        base.executemany("INSERT INTO invoice VALUES (?, ?, ?)", rows)
        base.execute("CREATE TABLE imported (id INTEGER PRIMARY KEY, text TEXT)")
    base.close()


def importer(path):
    """Takes what has arrived into the database, in one transaction for each file."""
    base = sqlite3.connect(path, timeout=60, isolation_level=None)
    while True:
        base.execute("BEGIN EXCLUSIVE")
        for line in range(40):
            base.execute("INSERT INTO imported (text) VALUES (?)", (f"line {line}",))
            time.sleep(0.005)  # the next line comes over the network
        base.execute("COMMIT")
        time.sleep(0.03)


class Invoices(Dataset):
    def __init__(self, path, count):
        self.path = path
        self.count = count
        self.base = None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.base is None:
            self.base = sqlite3.connect(self.path, timeout=60)
        query = "SELECT amounts, kind FROM invoice WHERE id = ?"
        amounts, kind = self.base.execute(query, (index,)).fetchone()
        return torch.frombuffer(bytearray(amounts), dtype=torch.float32), kind


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the machine is shared
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 5))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "invoices.sqlite"))
        create(path, "WAL" if args.without else "DELETE", 4800)
        other = multiprocessing.Process(target=importer, args=(path,), daemon=True)
        other.start()
        loader = DataLoader(
            Invoices(path, 4800), batch_size=32, shuffle=True, num_workers=args.workers
        )
        begin = time.perf_counter()
        for amounts, kinds in loader:
            loss = nn.functional.cross_entropy(model(amounts), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.015)  # the rest of the step, on the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")
        other.kill()
        other.join()


if __name__ == "__main__":
    main()
