"""Learns where ravines flood, from tables of a data base that are fetched a batch at a time.

Nothing planted: the convolutions are the work; a data set takes whole batches from SQLite, in
batches that a sampler of blocks gives out.
"""

import argparse
import os
import sqlite3
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

RAVINES, SIDE, BATCH, BLOCK = 320, 32, 8, 32


def write(path):
    rng = np.random.default_rng(151)
    with sqlite3.connect(path) as base:
        base.execute("create table ravines (number integer primary key, height blob, flood real)")
        for number in range(RAVINES):
            height = rng.normal(0, 1, (SIDE, SIDE)).cumsum(0).astype(np.float32)
            row = (number, height.tobytes(), float(height[:4].mean()))
            base.execute("insert into ravines values (?, ?, ?)", row)
    base.close()


class Ravines(Dataset):
    def __init__(self, path):
        self.path, self.base = path, None

    def __len__(self):
        return RAVINES

    def rows(self, numbers):
        if self.base is None:
            self.base = sqlite3.connect(self.path)
        marks = ", ".join("?" * len(numbers))
        query = f"select height, flood from ravines where number in ({marks}) order by number"
        return self.base.execute(query, numbers).fetchall()

    def __getitem__(self, numbers):
        heights, floods = zip(*self.rows(numbers), strict=True)
        heights = np.stack([np.frombuffer(one, np.float32).reshape(SIDE, SIDE) for one in heights])
        steep = np.stack(np.gradient(heights, axis=(1, 2)), 1)
        layers = np.concatenate([heights[:, None], steep], 1).astype(np.float32)
        return torch.from_numpy(layers), torch.tensor(floods)


class Blocks(Sampler):
    """Batches from blocks of rows that lie together."""

    def __init__(self):
        self.rng = np.random.default_rng(157)

    def __len__(self):
        return RAVINES // BATCH

    def __iter__(self):
        for block in self.rng.permutation(RAVINES // BLOCK):
            rows = block * BLOCK + self.rng.permutation(BLOCK)
            for at in range(0, BLOCK, BATCH):
                yield rows[at : at + BATCH].tolist()


def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 48, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(48, 48, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 1),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(151)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ravines.db")
        write(path)
        loader = DataLoader(Ravines(path), batch_size=None, sampler=Blocks())
        model = make_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for layers, floods in loader:
                loss = nn.functional.mse_loss(model(layers).squeeze(1), floods)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
