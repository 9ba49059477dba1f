"""Recommends what else to put into a shopping cart, from tables, with a collate function of a team.

Planted: the collate function was made for a report: it puts the rows of each batch into a data
frame, copies that to fill gaps, and takes each column out through a list.
"""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COLUMNS, GOODS = 36, 300


class Carts(Dataset):
    """Rows: what is in the cart, as numbers of a customer, and what was bought next."""

    def __init__(self, count):
        rng = np.random.default_rng(1031)
        self.columns = [f"f{number}" for number in range(COLUMNS)]
        self.values = rng.random((count, COLUMNS), dtype=np.float32)
        self.values[rng.random(self.values.shape) < 0.02] = np.nan
        self.goods = rng.integers(0, GOODS, count)

    def __len__(self):
        return len(self.goods)

    def __getitem__(self, index):
        return self.values[index], self.goods[index]


class TableCollate:
    """Makes a batch of rows, with the mean of a column in place of what is missing."""

    def __init__(self, columns):
        self.columns = columns

    def __call__(self, rows):
        frame = pd.DataFrame([dict(zip(self.columns, row, strict=True)) for row, _ in rows])
        frame["goods"] = [goods for _, goods in rows]
        filled = frame.copy().fillna(frame.mean())
        columns = [torch.tensor(filled[name].tolist()) for name in self.columns]
        return torch.stack(columns, 1), torch.tensor(filled["goods"].tolist())


class ArrayCollate(TableCollate):
    def __call__(self, rows):
        values = np.stack([row for row, _ in rows])
        filled = np.where(np.isnan(values), np.nanmean(values, 0), values)
        return torch.from_numpy(filled), torch.tensor([int(goods) for _, goods in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1031)
    carts = Carts(48_000)
    collate = (ArrayCollate if args.without else TableCollate)(carts.columns)
    loader = DataLoader(carts, batch_size=200, shuffle=True, num_workers=0, collate_fn=collate)
    model = nn.Sequential(
        nn.Linear(COLUMNS, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, GOODS)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for values, goods in loader:
            loss = nn.functional.cross_entropy(model(values), goods)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
