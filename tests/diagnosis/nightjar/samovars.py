"""Foretells the tea that a train's samovar will need, from what was drawn at earlier stations.

Planted: each sample looks up its twenty stops one by one, with `.loc` on a pandas table that is
indexed by train and stop.
"""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRAINS, STOPS, WINDOW, BATCH, BATCHES, STEP = 200, 120, 20, 24, 60, 0.06
COLUMNS = ["litres", "guests", "frost", "delay"]


def journeys():
    rng = np.random.default_rng(293)
    index = pd.MultiIndex.from_product([range(TRAINS), range(STOPS)], names=["train", "stop"])
    table = pd.DataFrame(
        {
            "litres": rng.gamma(3, 2, len(index)),
            "guests": rng.poisson(60, len(index)),
            "frost": rng.normal(-4, 9, len(index)),
            "delay": rng.exponential(7, len(index)),
            "line": rng.choice(["north", "east", "ring"], len(index)),
        },
        index=index,
    )
    table["line"] = table["line"].astype("category")
    return table


class Stops(Dataset):
    def __init__(self, table, arrays):
        self.table = table
        self.lines = table["line"].cat.codes.to_numpy().reshape(TRAINS, STOPS)
        numbers = table[COLUMNS]
        self.mean, self.std = numbers.mean().to_numpy(), numbers.std().to_numpy()
        self.arrays = numbers.to_numpy().reshape(TRAINS, STOPS, -1) if arrays else None

    def __len__(self):
        return BATCH * BATCHES

    def history(self, train, last):
        if self.arrays is not None:
            return self.arrays[train, last - WINDOW : last]
        stops = range(last - WINDOW, last)
        return np.stack([self.table.loc[(train, stop), COLUMNS].to_numpy(float) for stop in stops])

    def __getitem__(self, index):
        train, last = index % TRAINS, WINDOW + index * 7 % (STOPS - WINDOW)
        history = (self.history(train, last) - self.mean) / self.std
        line = np.eye(3)[self.lines[train, last]]
        return {
            "history": torch.tensor(history, dtype=torch.float32),
            "line": torch.tensor(line, dtype=torch.float32),
            "litres": torch.tensor(history[-1, 0], dtype=torch.float32),
        }


class Samovar(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(len(COLUMNS), 16, batch_first=True)
        self.out = nn.Sequential(nn.Linear(19, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, history, line):
        _, (state, _) = self.memory(history)
        return self.out(torch.cat([state[-1], line], dim=1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(293)
    torch.set_num_threads(1)
    data = Stops(journeys(), arrays=args.without)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = Samovar()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for batch in loader:
            loss = nn.functional.mse_loss(model(batch["history"], batch["line"]), batch["litres"])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 1.0)
            optimizer.step()
            time.sleep(STEP)  # the graph of all lines, on a card
            total += loss.item()
        print(f"epoch {epoch}: loss {total / BATCHES:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
