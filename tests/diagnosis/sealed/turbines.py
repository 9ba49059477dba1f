"""Forecast the power of wind turbines from archives of one day each, read in order."""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

WINDOWS = 240  # of a day
LENGTH = 128
CHANNELS = 128


class DayArchive:
    """One day's measurements in a compressed file."""

    def __init__(self, path):
        with np.load(path) as archive:
            self.power = torch.from_numpy(archive["power"])
            counts = archive["wind"]
        # The instruments drift, so that each day has its own curve.
        levels = np.quantile(counts, np.linspace(0, 1, 9))
        speeds = np.interp(counts, levels, np.linspace(0, 24, 9))
        self.wind = torch.from_numpy(speeds.astype(np.float32))

    def window(self, number):
        return self.wind[number], self.power[number]


class Turbines(Dataset):
    """Windows of all days; the day that was last asked for stays open."""

    def __init__(self, paths):
        self.paths = paths
        self.day = None
        self.archive = None

    def __len__(self):
        return len(self.paths) * WINDOWS

    def __getitem__(self, index):
        day, window = divmod(index, WINDOWS)
        if day != self.day:
            self.archive = DayArchive(self.paths[day])
            self.day = day
        return self.archive.window(window)


def record(folder, days):
    rng = np.random.default_rng(7)
    wind = rng.integers(0, 24, (WINDOWS, CHANNELS, LENGTH)).astype(np.float32)
    for day in range(days):
        path = os.path.join(folder, f"day-{day:03}.npz")
        if day == 0:
            np.savez_compressed(path, wind=wind, power=wind.mean((1, 2)))
            first = path
        else:
            os.link(first, path)
        yield path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--days", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    prefetch = 30 if args.without else args.prefetch

    with tempfile.TemporaryDirectory() as folder:
        turbines = Turbines(list(record(folder, args.days)))
        loader = DataLoader(
            turbines, batch_size=args.batch_size, num_workers=1, prefetch_factor=prefetch
        )
        begin = time.perf_counter()
        for _wind, _power in loader:
            time.sleep(0.024)  # stands for the step on the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
