"""Tells which customer comes back, from the lines of one receipt at a time.

Planted: each sample groups the whole table by receipt anew to get at its own few lines.
"""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import default_collate

RECEIPTS, LINES = 800, 9
COLUMNS = ["amount", "price", "discount", "department"]


def sales():
    rng = np.random.default_rng(719)
    count = RECEIPTS * LINES
    return pd.DataFrame(
        {
            "receipt": [f"R{number:06d}" for number in rng.integers(0, RECEIPTS, count)],
            "amount": rng.integers(1, 6, count).astype(np.float32),
            "price": rng.gamma(2, 3, count).astype(np.float32),
            "discount": (rng.random(count) < 0.1).astype(np.float32),
            "department": rng.integers(0, 12, count).astype(np.float32),
        }
    )


class Receipts(Dataset):
    """The lines of each receipt, cut or padded to a fixed number."""

    def __init__(self, table, at_once):
        self.table = table
        self.names = sorted(table["receipt"].unique())
        self.groups = dict(iter(table.groupby("receipt"))) if at_once else None

    def lines_of(self, name):
        if self.groups is not None:
            return self.groups[name]
        return self.table.groupby("receipt").get_group(name)

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        lines = self.lines_of(self.names[index])
        values = lines[COLUMNS].to_numpy(np.float32)[:LINES]
        padded = np.zeros((LINES, len(COLUMNS)), np.float32)
        padded[: len(values)] = values
        return torch.from_numpy(padded), int(len(lines) > LINES)


class Shopper(nn.Module):
    def __init__(self):
        super().__init__()
        self.lines = nn.GRU(len(COLUMNS), 64, batch_first=True)
        self.head = nn.Linear(64, 2)

    def forward(self, lines):
        return self.head(self.lines(lines)[1][-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(719)
    dataset = Receipts(sales(), args.without)
    loader = DataLoader(dataset, batch_size=25, shuffle=True, collate_fn=default_collate)
    model = Shopper()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for lines, back in loader:
            loss = nn.functional.cross_entropy(model(lines), back)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
