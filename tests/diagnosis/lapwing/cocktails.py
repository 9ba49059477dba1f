"""Predicts which cocktails are ordered again from what is in them; keeps a table of the training.

Planted: after each batch a row is appended to a pandas table by a copy of it, and the table is
grouped and written to a CSV file as a whole, while no batch is taken.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COCKTAILS, PARTS, BATCH, STEP = 2400, 24, 24, 0.015
EARLIER = 9000


class Cocktails(Dataset):
    def __init__(self):
        rng = np.random.default_rng(5147)
        self.table = pd.DataFrame(
            rng.dirichlet(np.full(PARTS, 0.2), COCKTAILS).astype(np.float32),
            columns=[f"part_{number:02}" for number in range(PARTS)],
        )
        self.again = (self.table["part_03"] + rng.normal(0, 0.05, COCKTAILS) > 0.04).to_numpy()

    def __len__(self):
        return COCKTAILS

    def __getitem__(self, index):
        parts = self.table.iloc[index].to_numpy()
        parts = parts + np.random.normal(0, 0.01, PARTS)
        return torch.tensor(parts, dtype=torch.float32), float(self.again[index])


class Chronicle:
    """How the training goes, of this run and of those before it."""

    def __init__(self, path, every):
        self.path, self.every = path, every
        steps = np.arange(EARLIER)
        self.table = pd.DataFrame({"epoch": steps // 120, "step": steps, "loss": 0.7, "norm": 1.0})
        self.rows = []

    def add(self, **row):
        self.rows.append(row)
        if len(self.rows) == self.every:
            self.flush()

    def flush(self):
        self.table = pd.concat([self.table, pd.DataFrame(self.rows)], ignore_index=True)
        self.rows = []
        best = self.table.groupby("epoch")["loss"].agg(["min", "mean"])
        best.to_csv(self.path.with_suffix(".best.csv"))
        self.table.to_csv(self.path, index=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5147)
    torch.set_num_threads(1)
    loader = DataLoader(Cocktails(), BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Linear(PARTS, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        chronicle = Chronicle(Path(folder, "runs.csv"), len(loader) if args.without else 1)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for number, (parts, again) in enumerate(loader):
                scores = model(parts).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(scores, again.float())
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                time.sleep(STEP)  # the device works
                chronicle.add(epoch=100 + epoch, step=number, loss=loss.item(), norm=norm.item())
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
