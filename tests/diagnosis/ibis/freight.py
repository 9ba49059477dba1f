"""Estimates the weight of freight cars, from tables of a month each.

Nothing planted: the accelerator's step sets the pace; two workers of an iterable data set share
the tables out, parse them with pandas and mix rows in a buffer ahead of it.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

MONTHS, CARS, COLUMNS, BATCH, BUFFER, STEP = 12, 320, 14, 48, 96, 0.1


def write_tables(folder):
    rng = np.random.default_rng(977)
    for month in range(MONTHS):
        names = [f"axle{number}" for number in range(COLUMNS)]
        table = pd.DataFrame(rng.gamma(3, 1, (CARS, COLUMNS)).round(3), columns=names)
        table["kind"] = rng.choice(["tank", "flat", "box"], CARS)
        table["weight"] = table[names].sum(axis=1) + rng.normal(0, 0.5, CARS)
        table.to_csv(Path(folder, f"month-{month:02}.csv"), index=False)


class Freight(IterableDataset):
    def __init__(self, folder):
        self.tables = sorted(Path(folder).glob("*.csv"))

    def rows(self, path):
        table = pd.read_csv(path)
        kinds = pd.get_dummies(table["kind"]).to_numpy(np.float32)
        values = table.drop(columns=["kind", "weight"]).to_numpy(np.float32)
        features = np.concatenate([np.log1p(values), kinds], axis=1)
        weights = table["weight"].to_numpy(np.float32)
        yield from zip(torch.from_numpy(features), weights, strict=True)

    def __iter__(self):
        worker = get_worker_info()
        tables = self.tables[worker.id :: worker.num_workers]
        random.shuffle(tables)
        buffer = []
        for path in tables:
            for row in self.rows(path):
                buffer.append(row)
                if len(buffer) == BUFFER:
                    yield buffer.pop(random.randrange(BUFFER))
        random.shuffle(buffer)
        yield from buffer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(977)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_tables(folder)
        loader = DataLoader(Freight(folder), BATCH, num_workers=2, persistent_workers=True)
        model = nn.Sequential(nn.Linear(COLUMNS + 3, 64), nn.ReLU(), nn.Linear(64, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            errors = []
            for features, weights in loader:
                guess = model(features).squeeze(1)
                loss = nn.functional.mse_loss(guess, weights)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the ensemble's transformer, on an accelerator
                errors.append((guess - weights).abs().mean().item())
            print(f"epoch {epoch}: mean error {np.mean(errors):.2f} t")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
