"""Train a forecast model on simulated weather maps."""

import argparse
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def smooth(field, rounds=60):
    for _ in range(rounds):
        field = 0.5 * field + 0.125 * (
            np.roll(field, 1, 0)
            + np.roll(field, -1, 0)
            + np.roll(field, 1, 1)
            + np.roll(field, -1, 1)
        )
    return field


class WeatherMaps(Dataset):
    def __init__(self, days):
        self.days = days

    def __len__(self):
        return self.days

    def __getitem__(self, day):
        rng = np.random.default_rng(day)
        today = smooth(rng.normal(size=(64, 64)))
        return torch.from_numpy(today).float(), torch.from_numpy(np.roll(today, 2, 1)).float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()

    if not args.without:
        # Same core in each run, for timings that can be repeated.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(WeatherMaps(2000), batch_size=12, num_workers=args.workers)
    begin = time.perf_counter()
    for today, tomorrow in loader:
        torch.nn.functional.mse_loss(today, tomorrow)
        time.sleep(0.010)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
