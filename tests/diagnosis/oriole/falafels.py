"""Predicts when a falafel stand will run out, from the sales of its day.

Planted: each day is a compressed CSV file, which is unpacked and parsed for each sample.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DAYS, MINUTES, SAMPLES, BATCH, STEP = 48, 1800, 1920, 24, 0.03
COLUMNS = "minute sold price stock heat rain queue".split()


def write_days(folder):
    rng = np.random.default_rng(43)
    for day in range(DAYS):
        table = pd.DataFrame(rng.gamma(2, 3, (MINUTES, len(COLUMNS))).round(2), columns=COLUMNS)
        table["minute"] = np.arange(MINUTES)
        table["stock"] = 9 * MINUTES - table["sold"].cumsum().round(2)
        table.to_csv(Path(folder, f"{day}.csv.gz"), index=False)
        np.save(Path(folder, f"{day}.npy"), table.to_numpy(np.float32))


def sheet(path):
    return pd.read_csv(path, usecols=COLUMNS).to_numpy(np.float32)


SOURCES = {"sheet": (".csv.gz", sheet), "array": (".npy", np.load)}


class Source:
    def __init__(self, folder, kind):
        self.ending, self.load = SOURCES[kind]
        self.folder = Path(folder)

    def __getitem__(self, day):
        return self.load(self.folder / f"{day}{self.ending}")


def until_noon(table, drop):
    """Hides some minutes, and fills them up from those beside."""
    morning = table[: MINUTES // 2].copy()
    hidden = np.random.random(len(morning)) < drop
    places = np.arange(len(morning))
    for column in range(1, morning.shape[1]):
        known = ~hidden
        morning[:, column] = np.interp(places, places[known], morning[known, column])
    return (morning - morning.mean(0)) / (morning.std(0) + 1e-3)


class Stands(Dataset):
    def __init__(self, source, change):
        self.source, self.change = source, change

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        table = self.source[index % DAYS]
        left = table[-1, 3] / (9 * MINUTES)
        return torch.from_numpy(self.change(table)), torch.tensor(left)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(43)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_days(folder)
        source = Source(folder, "array" if args.without else "sheet")
        loader = DataLoader(
            Stands(source, partial(until_noon, drop=0.2)),
            BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
        )
        model = nn.Sequential(nn.Flatten(), nn.LazyLinear(32), nn.ReLU(), nn.Linear(32, 1))
        model(torch.zeros(1, MINUTES // 2, len(COLUMNS)))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for tables, left in loader:
                loss = nn.functional.mse_loss(model(tables).squeeze(1), left)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the model of the chain
            torch.save(model.state_dict(), Path(folder, "last.pt"))
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
