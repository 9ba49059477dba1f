"""Learns what forges have made from sketches, which lie in a small database.

Nothing is planted: two networks that learn from one another are the work. One worker unpacks
sketches from the database ahead of them.
"""

import argparse
import sqlite3
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, KINDS, SKETCHES = 32, 10, 200


def sketch(path):
    rng = np.random.default_rng(631)
    database = sqlite3.connect(path)
    database.execute("create table sketches (number integer primary key, packed blob)")
    for number in range(SKETCHES):
        lines = (rng.random((SIDE, SIDE)) < 0.1).astype(np.uint8)
        database.execute("insert into sketches values (?, ?)", (number, zlib.compress(lines)))
    database.commit()
    database.close()


class Sketches(Dataset):
    def __init__(self, path, count):
        self.path, self.count, self.database = path, count, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.database is None:
            self.database = sqlite3.connect(self.path)
        query = "select packed from sketches where number = ?"
        (packed,) = self.database.execute(query, (index % SKETCHES,)).fetchone()
        lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(1, SIDE, SIDE)
        return torch.from_numpy(np.roll(lines, index % 5, 2).astype(np.float32)), index % KINDS


def build_model(width):
    layers = []
    for inputs, outputs in ((1, width), (width, width), (width, 2 * width)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.LazyLinear(KINDS))


def agree(scores, other):
    """How far one network's opinion is from the other's."""
    chances = nn.functional.log_softmax(scores, 1)
    return nn.functional.kl_div(chances, other.detach().softmax(1), reduction="batchmean")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(631)
    models = nn.ModuleList([build_model(32), build_model(24)])
    for model in models:
        model(torch.zeros(2, 1, SIDE, SIDE))
    optimizer = torch.optim.SGD(models.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sketches.db")
        sketch(path)
        loader = DataLoader(
            Sketches(path, 480), batch_size=16, shuffle=True, num_workers=1,
            persistent_workers=True,
        )  # fmt: skip
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for lines, kinds in loader:
                first, second = (model(lines) for model in models)
                loss = nn.functional.cross_entropy(first, kinds)
                loss = loss + nn.functional.cross_entropy(second, kinds)
                loss = loss + agree(first, second) + agree(second, first)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
