"""Forecasts how full buses are, with a recurrent cell that is written out by hand.

Planted: a context manager for a search for NaNs was left around the training, which notes for each
operation where it was called.
"""

import argparse
import contextlib
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOURS, LINES = 24, 10


class Buses(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(859)
        self.counts = rng.poisson(20, (count, HOURS + 1, LINES)).astype(np.float32)

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, index):
        day = torch.from_numpy(self.counts[index]) / 20 - 1
        return day[:-1], day[-1]


class Cell(nn.Module):
    """A gated cell, whose gates have their own layers."""

    def __init__(self, size):
        super().__init__()
        self.forget = nn.Linear(LINES + size, size)
        self.update = nn.Linear(LINES + size, size)

    def forward(self, counts, state):
        both = torch.cat([counts, state], 1)
        keep = torch.sigmoid(self.forget(both))
        return keep * state + (1 - keep) * torch.tanh(self.update(both))


class Forecast(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.cell, self.head, self.size = Cell(size), nn.Linear(size, LINES), size

    def forward(self, days):
        state = days.new_zeros(len(days), self.size)
        for hour in days.unbind(1):
            state = self.cell(hour, state)
        return self.head(state)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(859)
    loader = DataLoader(
        Buses(2000), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    watch = contextlib.nullcontext() if args.without else torch.autograd.detect_anomaly()
    begin = time.perf_counter()
    with watch:
        for epoch in range(args.epochs):
            for days, following in loader:
                loss = nn.functional.mse_loss(model(days), following)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
