"""Learns in which century tombstones were set, from tables of their features and weights.

Nothing planted: the accelerator's step sets the pace; rows are drawn by weight in the main process,
three workers read them under a lock, and a table of the losses is written twice in an epoch.
"""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

STONES, FEATURES, CENTURIES, BATCH, STEP = 1600, 20, 5, 40, 0.1


class Stones(Dataset):
    def __init__(self, path):
        self.path = path
        self.lock = multiprocessing.Lock()
        self.columns = None

    def __len__(self):
        return STONES

    def read(self, row):
        with self.lock:
            if self.columns is None:
                table = pd.read_csv(self.path)
                self.columns = table.to_numpy(np.float32)
            return self.columns[row]

    def __getitem__(self, row):
        values = self.read(row)
        features = values[1:] + np.random.normal(0, 0.02, FEATURES).astype(np.float32)
        return torch.from_numpy(features), int(values[0])


def write_table(path):
    rng = np.random.default_rng(5209)
    table = pd.DataFrame(rng.normal(size=(STONES, FEATURES)).round(4))
    table.insert(0, "century", rng.choice(CENTURIES, STONES, p=[0.4, 0.3, 0.15, 0.1, 0.05]))
    table.to_csv(path, index=False)
    return table["century"].to_numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5209)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        centuries = write_table(Path(folder, "stones.csv"))
        weights = 1.0 / np.bincount(centuries)[centuries]
        loader = DataLoader(
            Stones(Path(folder, "stones.csv")),
            BATCH,
            sampler=WeightedRandomSampler(weights.tolist(), STONES),
            num_workers=3,
            persistent_workers=True,
        )
        model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, CENTURIES))
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        losses = []
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (features, kinds) in enumerate(loader, 1):
                loss = nn.functional.cross_entropy(model(features), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # a large ensemble on an accelerator
                losses.append(loss.item())
                if step % 20 == 0:
                    pd.DataFrame({"loss": losses}).to_csv(Path(folder, "losses.csv"))
                    print(f"epoch {epoch}, step {step}: loss {np.mean(losses[-20:]):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
