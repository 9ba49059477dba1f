"""Forecast the temperature from the archives of weather stations, streamed file by file."""

import argparse
import gzip
import json
import pathlib
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

HOURS = 168
COLUMNS = 20


class Journal:
    """A record of the weeks that were trained on, for the archive."""

    def __init__(self, path):
        self.path = path

    def add(self, station, week):
        readings = [[round(value, 3) for value in hour] for hour in week.tolist()]
        means = [sum(column) / len(readings) for column in zip(*readings, strict=True)]
        with gzip.open(self.path, "at") as file:
            file.write(json.dumps({"station": station, "means": means, "readings": readings}))


class Weeks(IterableDataset):
    """All weeks of the stations; the first worker keeps the journal."""

    def __init__(self, paths, journal=None):
        self.paths = paths
        self.journal = journal

    def __iter__(self):
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for path in self.paths[number::workers]:
            values = np.load(path)
            for begin in range(0, len(values), HOURS):
                week = values[begin : begin + HOURS]
                if self.journal and number == 0:
                    self.journal.add(path.stem, week)
                week = (week - week.mean(0)) / week.std(0)
                yield torch.from_numpy(week[:-24]), torch.tensor(week[-24:, 0].mean())


def write_stations(folder, stations, weeks):
    rng = np.random.default_rng(4)
    paths = []
    for number in range(stations):
        season = np.sin(np.linspace(0, 12, weeks * HOURS))[:, None] * 12
        values = season + rng.normal(10, 4, (weeks * HOURS, COLUMNS))
        path = pathlib.Path(folder) / f"station-{number:03}.npy"
        np.save(path, values.astype(np.float32))
        paths.append(path)
    return paths


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        paths = write_stations(folder, stations=24, weeks=160)
        journal = None if args.without else Journal(pathlib.Path(folder) / "journal.json.gz")
        loader = DataLoader(Weeks(paths, journal), batch_size=10, num_workers=args.workers)
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for _weeks, _temperatures in loader:
                time.sleep(0.004)  # the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
