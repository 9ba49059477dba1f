"""Visits of patients: each sample searches the whole table for the visits of one patient."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COLUMNS = ["age", "pulse", "pressure", "sugar"]


def visits(count=300_000, patients=4000):
    rng = np.random.default_rng(18)
    table = pd.DataFrame(rng.normal(size=(count, 4)).astype(np.float32), columns=COLUMNS)
    table["patient"] = [f"P{number:06}" for number in rng.integers(0, patients, count)]
    return table


class Patients(Dataset):
    def __init__(self, table, grouped, visible=600):
        self.names = sorted(table["patient"].unique())[:visible]
        self.table = table
        self.groups = table.groupby("patient").indices if grouped else None

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        if self.groups is None:
            rows = self.table[self.table["patient"] == name]
        else:
            rows = self.table.iloc[self.groups[name]]
        values = torch.tensor(rows[COLUMNS].to_numpy())
        return values.mean(0), values.std(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(18)
    loader = DataLoader(
        Patients(visits(), grouped=args.without),
        batch_size=20,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Linear(4, 512), nn.ReLU(), nn.Linear(512, 4))
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for means, spreads in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(means), spreads)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
