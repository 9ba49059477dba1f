"""Forecasts the price of limes from a data frame of markets.

Healthy: a recurrent network is the work. One kept worker takes rows with iloc, which is known to
be slow, but has plenty of time for it.
"""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DAYS, COLUMNS = 48, ["price", "rain", "lorries", "holiday"]


class Markets(Dataset):
    """Windows of days, taken by their place in the frame."""

    def __init__(self, count):
        rng = np.random.default_rng(97)
        self.frame = pd.DataFrame(
            rng.normal(size=(count + DAYS, len(COLUMNS))),
            columns=COLUMNS,
            index=pd.date_range("2015-01-01", periods=count + DAYS),
        )
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        window = self.frame.iloc[index : index + DAYS]
        price = self.frame.iloc[index + DAYS - 1]["price"]
        return window[COLUMNS].to_numpy(np.float32)[:-1], np.float32(price)


class Forecaster(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.rnn = nn.LSTM(len(COLUMNS), width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, days):
        states, _ = self.rnn(days)
        return self.out(states[:, -1])[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(97)
    loader = DataLoader(
        Markets(800), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for days, price in loader:
            loss = nn.functional.huber_loss(model(days), price)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
