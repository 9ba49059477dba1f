"""Train on a stream of sensor readings over several epochs."""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Readings(IterableDataset):
    def __init__(self, stations, hours):
        self.stations = stations
        self.hours = hours

    def __iter__(self):
        info = get_worker_info()
        stations = range(self.stations)
        if info is not None:
            stations = stations[info.id :: info.num_workers]
        for station in stations:
            rng = np.random.default_rng(station)
            for _ in range(self.hours):
                window = np.cumsum(rng.normal(size=(24, 16)), axis=0)
                yield window.astype(np.float32), np.float32(window[-1].mean())


class Trainer:
    def __init__(self, loader, epochs):
        self.loader = loader
        self.epochs = epochs

    def train_step(self, window, target):
        window.mean() - target.mean()
        time.sleep(0.045)

    def fit(self):
        begin = time.perf_counter()
        for _epoch in range(self.epochs):
            for window, target in self.loader:
                self.train_step(window, target)
        return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    loader = DataLoader(
        Readings(stations=16, hours=50),
        batch_size=20,
        num_workers=args.workers,
        persistent_workers=True,
    )
    print(f"seconds {Trainer(loader, epochs=3).fit():.3f}")


if __name__ == "__main__":
    main()
