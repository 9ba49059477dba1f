"""Forecast the temperature from the archives of weather stations, streamed file by file."""

import argparse
import csv
import pathlib
import random
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

HOURS = 168
COLUMNS = 6


class StationFiles:
    """Files of stations: ones of before 1990 are typed tables, the others binary."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def write(self, stations, weeks):
        rng = np.random.default_rng(4)
        for number in range(stations):
            values = rng.normal(10, 8, (weeks * HOURS, COLUMNS)).astype(np.float32)
            if number % 3 == 1:
                with (self.folder / f"{number:03}.csv").open("w", newline="") as file:
                    csv.writer(file).writerows(values.tolist())
            else:
                np.save(self.folder / f"{number:03}.npy", values)

    def names(self):
        return sorted(self.folder.iterdir())

    @staticmethod
    def weeks(path):
        if path.suffix == ".npy":
            values = np.load(path)
            for begin in range(0, len(values), HOURS):
                week = values[begin : begin + HOURS]
                yield (week - week.mean(0)) / week.std(0)
            return
        with path.open(newline="") as file:
            week = []
            for row in csv.reader(file):
                week.append([round(float(cell), 2) for cell in row])
                if len(week) == HOURS:
                    means = [sum(column) / HOURS for column in zip(*week, strict=True)]
                    yield np.array(
                        [
                            [cell - mean for cell, mean in zip(row, means, strict=True)]
                            for row in week
                        ],
                        np.float32,
                    )
                    week = []


class Weeks(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        worker = get_worker_info()
        mine = self.paths[worker.id :: worker.num_workers] if worker else self.paths
        for path in mine:
            for week in StationFiles.weeks(path):
                yield torch.from_numpy(week[:-24].copy()), torch.tensor(week[-24:, 0].mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        files = StationFiles(folder)
        files.write(stations=27, weeks=110)
        paths = files.names()
        if args.without:
            random.Random(1).shuffle(paths)
        loader = DataLoader(Weeks(paths), batch_size=10, num_workers=args.workers)
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for _weeks, _temperatures in loader:
                time.sleep(0.010)  # the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
