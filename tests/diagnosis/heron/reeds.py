"""Fits a transformer to counts of birds in the reeds, hour by hour.

Nothing is planted: there are no workers, and cutting windows out of an array in memory takes less
than a twenty-fifth of the time. Each window is put together by a method that looks costly.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOURS, SPECIES, WINDOW = 14_000, 12, 64


class Windows(Dataset):
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        time_of_day = np.arange(HOURS)[:, None] * (2 * np.pi / 24)
        phase = rng.random(SPECIES) * 2 * np.pi
        counts = rng.poisson(8 + 6 * np.sin(time_of_day + phase))
        self.counts = torch.from_numpy(np.log1p(counts).astype(np.float32))
        self.starts = range(0, HOURS - WINDOW - 1, 22)

    def __len__(self):
        return len(self.starts)

    def clean(self, window):
        """Limit what is far from the rest, column by column."""
        middle = window.median(0).values
        return torch.minimum(window, middle + 3)

    def __getitem__(self, index):
        start = self.starts[index]
        window = self.clean(self.counts[start : start + WINDOW])
        return window, self.counts[start + WINDOW]


class Forecast(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.enter = nn.Linear(SPECIES, size)
        self.places = nn.Parameter(torch.zeros(WINDOW, size))
        layer = nn.TransformerEncoderLayer(size, 4, 2 * size, batch_first=True, dropout=0.1)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.leave = nn.Linear(size, SPECIES)

    def forward(self, windows):
        return self.leave(self.layers(self.enter(windows) + self.places)[:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(109)
    loader = DataLoader(Windows(109), batch_size=16, shuffle=True)
    model = Forecast()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for windows, following in loader:
            loss = nn.functional.mse_loss(model(windows), following)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
