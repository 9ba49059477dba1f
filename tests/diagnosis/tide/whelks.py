"""Forecasts catches of whelks from a table; the number of workers comes from a large machine."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def make_table(days=1200, seed=8):
    rng = np.random.default_rng(seed)
    day = pd.date_range("2020-01-01", periods=days, freq="D")
    table = pd.DataFrame(rng.normal(size=(days, 12)).cumsum(0), index=day)
    table["season"] = np.sin(day.dayofyear.to_numpy() / 58)
    table["weekday"] = day.dayofweek / 6
    return table


class Windows(Dataset):
    """The last 28 days, and the mean catch of the seven days after them."""

    def __init__(self, table, window=28, ahead=7):
        values = table.to_numpy(np.float32)
        self.values = (values - values.mean(0)) / values.std(0)
        self.window, self.ahead = window, ahead

    def __len__(self):
        return len(self.values) - self.window - self.ahead

    def __getitem__(self, index):
        middle = index + self.window
        past = torch.from_numpy(self.values[index:middle])
        return past, torch.tensor(self.values[middle : middle + self.ahead, 0].mean())


class Forecaster(nn.Module):
    def __init__(self, columns=14, size=64):
        super().__init__()
        self.recurrent = nn.LSTM(columns, size, batch_first=True)
        self.head = nn.Sequential(nn.Linear(size, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, past):
        return self.head(self.recurrent(past)[0][:, -1]).squeeze(1)


def run_epoch(model, loader, optimizer=None):
    model.train(optimizer is not None)
    total = 0.0
    with torch.set_grad_enabled(optimizer is not None):
        for past, target in loader:
            loss = nn.functional.huber_loss(model(past), target)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    workers = 1 if args.without else 16
    torch.set_num_threads(1)
    torch.manual_seed(8)
    table = make_table()
    train = DataLoader(Windows(table[:1000]), batch_size=32, shuffle=True, num_workers=workers)
    check = DataLoader(Windows(table[1000:]), batch_size=64, num_workers=0)
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss = run_epoch(model, train, optimizer)
        held_out = run_epoch(model, check)
        plateau.step(held_out)
        print(f"epoch {epoch}: loss {loss:.4f}, held out {held_out:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
