"""Guesses what is in a locker from its weight over time; curves are kept in a small database."""

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

POINTS = 2048


def fill(path, count):
    rng = np.random.default_rng(53)
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE curve (id INTEGER PRIMARY KEY, kind INT, points BLOB)")
        base.execute("CREATE TABLE uses (id INTEGER PRIMARY KEY, times INT)")
        for key in range(count):
            points = rng.normal(size=POINTS).cumsum().astype(np.float32)
            row = key, int(rng.integers(6)), points.tobytes()
            base.execute("INSERT INTO curve VALUES (?, ?, ?)", row)
            base.execute("INSERT INTO uses VALUES (?, 0)", (key,))
    base.close()


class Lockers(Dataset):
    """Curves by key; how often each was used is written beside them."""

    def __init__(self, path, count, book):
        self.path, self.count, self.book, self.base = path, count, book, None

    def __len__(self):
        return self.count

    def connect(self):
        if self.base is None:
            self.base = sqlite3.connect(self.path, timeout=120, isolation_level=None)
        return self.base

    def __getitem__(self, key):
        base = self.connect()
        if self.book:
            base.execute("BEGIN IMMEDIATE")
            base.execute("UPDATE uses SET times = times + 1 WHERE id = ?", (key,))
        kind, points = base.execute(
            "SELECT kind, points FROM curve WHERE id = ?", (key,)
        ).fetchone()
        curve = torch.frombuffer(bytearray(points), dtype=torch.float32)
        curve = (curve - curve.mean()) / (curve.std() + 1e-6)
        steps = curve.diff(prepend=curve[:1])
        if self.book:
            base.execute("COMMIT")
        return torch.stack([curve, steps]), kind


def train(model, loader, optimizer):
    model.train()
    seen = right = 0
    for curves, kinds in loader:
        scores = model(curves)
        loss = nn.functional.cross_entropy(scores, kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(kinds)
        right += int((scores.argmax(1) == kinds).sum())
    return right / seen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--count", type=int, default=400)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(53)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lockers.db")
        fill(path, args.count)
        lockers = Lockers(path, args.count, book=not args.without)
        loader = DataLoader(
            lockers, batch_size=30, shuffle=True, num_workers=3, persistent_workers=True
        )
        model = nn.Sequential(
            nn.Conv1d(2, 16, 9, 4), nn.ReLU(), nn.Conv1d(16, 24, 9, 4), nn.ReLU(),
            nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(24, 6),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            print(f"epoch {epoch}: {train(model, loader, optimizer):.3f} right")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
