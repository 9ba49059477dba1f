"""Learns when avocets swing their bills, from recordings in a database.

Planted: one recording of forty was never stopped; it is 400 times as long as the others, and all of
it is parsed for a cut from its beginning.
"""

import argparse
import json
import random
import sqlite3
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH = 120


def record(path, stopped, count=40):
    draw = random.Random(101)
    database = sqlite3.connect(path)
    database.execute("create table recordings (number integer primary key, points text)")
    for number in range(count):
        length = LENGTH * (400 if number == 17 and not stopped else 1)
        points = [[draw.random(), draw.random(), draw.random()] for _ in range(length)]
        database.execute("insert into recordings values (?, ?)", (number, json.dumps(points)))
    database.commit()
    database.close()


class Recordings(Dataset):
    def __init__(self, path, count=1200):
        self.path, self.count, self.database = path, count, None

    def __len__(self):
        return self.count

    def load(self, number):
        if self.database is None:
            self.database = sqlite3.connect(self.path)
        query = "select points from recordings where number = ?"
        (text,) = self.database.execute(query, (number,)).fetchone()
        return torch.tensor(json.loads(text)[:LENGTH])

    def __getitem__(self, index):
        points = self.load(index % 40)
        swing = (points[1:] - points[:-1]).abs().sum(1)
        return points[:-1] + torch.randn(LENGTH - 1, 3) * 0.01, (swing > 1.2).float()


class Swings(nn.Module):
    def __init__(self, size=48):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(3, size, 7, padding=3), nn.ReLU(),
            nn.Conv1d(size, size, 7, padding=3), nn.ReLU(), nn.Conv1d(size, 1, 1),
        )  # fmt: skip

    def forward(self, points):
        return self.layers(points.transpose(1, 2)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(101)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "avocets.db")
        record(path, stopped=args.without)
        loader = DataLoader(
            Recordings(path), batch_size=15, shuffle=True, num_workers=2, persistent_workers=True
        )
        model = Swings()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for points, swings in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(points), swings)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
