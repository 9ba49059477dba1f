"""Learns from drawings that a database of SQLite keeps, whose readers are counted in it, too.

Planted: a worker reads the drawing within the transaction that counts the reading, and so each of
three workers waits until the others have had their answers.
"""

import argparse
import io
import sqlite3
import tempfile
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
from torchvision import transforms

ANSWER = 0.007


@dataclass
class Config:
    epochs: int
    strict: bool
    drawings: int = 420
    side: int = 48
    classes: int = 3
    batch: int = 14
    rate: float = 2e-3


def connect(path):
    database = sqlite3.connect(path, timeout=60, isolation_level="IMMEDIATE")
    database.execute("PRAGMA synchronous = OFF")
    return database


def write_database(path, config):
    rng = np.random.default_rng(5167)
    with closing(connect(path)) as database, database:
        database.execute("CREATE TABLE drawings (id INTEGER PRIMARY KEY, class INTEGER, png BLOB)")
        database.execute("CREATE TABLE readings (id INTEGER PRIMARY KEY, count INTEGER)")
        for number in range(config.drawings):
            small = rng.integers(0, 256, (6, 6), dtype=np.uint8) >> (number % config.classes)
            file = io.BytesIO()
            Image.fromarray(small).resize((config.side, config.side)).save(file, "png")
            row = (number, number % config.classes, file.getvalue())
            database.execute("INSERT INTO drawings VALUES (?, ?, ?)", row)
            database.execute("INSERT INTO readings VALUES (?, 0)", (number,))


class Drawings(Dataset):
    def __init__(self, path, config):
        self.path, self.config, self.database = path, config, None
        self.transform = transforms.Compose(
            [
                transforms.RandomAffine(8, translate=(0.05, 0.05)),
                transforms.ToTensor(),
                transforms.Normalize([0.5], [0.25]),
            ]
        )

    def __len__(self):
        return self.config.drawings

    def count(self, index):
        self.database.execute("UPDATE readings SET count = count + 1 WHERE id = ?", (index,))

    def read(self, index):
        query = "SELECT class, png FROM drawings WHERE id = ?"
        kind, png = self.database.execute(query, (index,)).fetchone()
        time.sleep(ANSWER)  # the volume of the database is on the network
        return Image.open(io.BytesIO(png)), kind

    def __getitem__(self, index):
        if self.database is None:
            self.database = connect(self.path)
        with self.database:
            self.count(index)
            if self.config.strict:
                picture, kind = self.read(index)
        if not self.config.strict:
            picture, kind = self.read(index)
        return self.transform(picture), kind


def mixed(bfloat):
    return torch.autocast("cpu", dtype=torch.bfloat16) if bfloat else nullcontext()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--bfloat", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(5167)
    config = Config(args.epochs, strict=not args.without)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        nn.Linear(72, config.classes),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.rate)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "drawings.db")
        write_database(path, config)
        weights = [1.0 + (index % config.classes) / 4 for index in range(config.drawings)]
        loader = DataLoader(
            Drawings(path, config),
            config.batch,
            sampler=WeightedRandomSampler(weights, config.drawings),
            num_workers=3,
            persistent_workers=True,
        )
        begin = time.perf_counter()
        for epoch in range(config.epochs):
            right = 0
            for drawings, kinds in loader:
                with mixed(args.bfloat):
                    scores = model(drawings).float()
                loss = nn.functional.cross_entropy(scores, kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (scores.argmax(1) == kinds).sum().item()
            print(f"epoch {epoch}: loss {loss:.3f}, right {right / config.drawings:.2f}")
            torch.save(model.state_dict(), Path(folder, f"epoch-{epoch}.pt"))
        seconds = time.perf_counter() - begin
        del loader
        with closing(connect(path)) as database:
            print("read", database.execute("SELECT sum(count) FROM readings").fetchone()[0])
        print(f"seconds {seconds:.3f}")


if __name__ == "__main__":
    main()
