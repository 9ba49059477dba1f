"""Forecasts the next hour of share prices from the ticks of a day.

Planted: the ticks of a day are brought onto a grid of twentieths of a second, in double precision,
and smoothed there, though only one point of each minute is kept.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARES, DAYS, SECONDS, TICKS, BATCH, STEP = 12, 40, 23_400, 3000, 8, 0.025
FIELDS = 3


def ticks(share, day):
    """Return times in seconds, (ticks,), and price, size and spread, (ticks, fields)."""
    rng = np.random.default_rng([61, share, day])
    at = np.sort(rng.uniform(0, SECONDS, TICKS))
    return at, np.cumsum(rng.normal(0, 0.01, (TICKS, FIELDS)), axis=0)


def on_grid(at, fields, grid):
    return np.stack([np.interp(grid, at, field) for field in fields.T])


def smoothed(series, width):
    total = np.cumsum(np.pad(series, ((0, 0), (width, 0)), mode="edge"), axis=1)
    return (total[:, width:] - total[:, :-width]) / width


class Minutes:
    """Brings ticks onto minutes, by a finer grid if `finer` is above one."""

    def __init__(self, finer):
        self.finer = finer

    def __call__(self, at, fields):
        grid = np.arange(0, SECONDS, 60 / self.finer)
        series = on_grid(at, fields, grid)
        if self.finer > 1:
            series = smoothed(series, self.finer)
        return series[:, :: self.finer].astype(np.float32)


class Days(IterableDataset):
    """The days of the worker's shares, one after the other."""

    def __init__(self, to_minutes):
        self.to_minutes = to_minutes

    def __iter__(self):
        info = get_worker_info()
        first, by = (info.id, info.num_workers) if info else (0, 1)
        for share in range(first, SHARES, by):
            for day in range(DAYS):
                series = self.to_minutes(*ticks(share, day))
                series += np.random.normal(0, 0.005, series.shape).astype(np.float32)
                yield torch.from_numpy(series[:, :-60]), torch.from_numpy(series[0, -60:].copy())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(61)
    torch.set_num_threads(1)
    loader = DataLoader(
        Days(Minutes(1 if args.without else 1200)),
        BATCH,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(FIELDS * 330, 128), nn.GELU(), nn.Linear(128, 60))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for past, ahead in loader:
            loss = nn.functional.mse_loss(model(past), ahead)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
