"""Predict which customers cancel, from a table of contracts."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMBERS = [f"usage_{month}" for month in range(12)]
PLANS = ["basic", "flat", "family", "business"]


def contracts(count):
    rng = np.random.default_rng(7)
    table = pd.DataFrame(rng.gamma(2, 10, (count, 12)), columns=NUMBERS)
    table["plan"] = rng.choice(PLANS, count)
    table["age"] = rng.integers(18, 90, count)
    table["cancelled"] = (table["usage_11"] < table["usage_0"]).astype(int)
    return table


class Contracts(Dataset):
    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        row = self.table.iloc[index]
        plan = [float(row["plan"] == name) for name in PLANS]
        usage = [row[name] for name in NUMBERS]
        features = torch.tensor([*usage, *plan, row["age"]], dtype=torch.float32)
        return features, torch.tensor(row["cancelled"])


class ContractsInMemory(Dataset):
    """The same, as tensors made once."""

    def __init__(self, table):
        plans = np.stack([table["plan"] == name for name in PLANS], axis=1)
        parts = [table[NUMBERS], plans, table[["age"]]]
        self.features = torch.from_numpy(np.hstack(parts).astype(np.float32))
        self.cancelled = torch.tensor(table["cancelled"].to_numpy())

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return self.features[index], self.cancelled[index]


class Trainer:
    def __init__(self, model, train):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        self.train = train

    def fit(self, epochs):
        for _epoch in range(epochs):
            for features, cancelled in self.train:
                loss = nn.functional.cross_entropy(self.model(features), cancelled)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the machine is shared
    table = contracts(12000)
    dataset = ContractsInMemory(table) if args.without else Contracts(table)
    model = nn.Sequential(nn.Linear(17, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU())
    model.append(nn.Linear(64, 2))
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=args.workers)
    begin = time.perf_counter()
    Trainer(model, loader).fit(epochs=2)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
