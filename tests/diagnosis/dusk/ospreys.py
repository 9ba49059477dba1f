"""Flights of ospreys, a file for each of four years, read over a slow line by three workers."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LINE_S = 0.005  # for one record
RECORD = 4 * 256


class Shards(IterableDataset):
    """Records out of files; each worker reads files of its own, or some records of each file.

    Subclasses `parse` a record.
    """

    def __init__(self, paths, by_record):
        self.paths, self.by_record = paths, by_record

    def places(self):
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        if self.by_record:
            for path in self.paths:
                count = path.stat().st_size // RECORD
                yield from ((path, record) for record in range(number, count, workers))
        else:
            for path in self.paths[number::workers]:
                count = path.stat().st_size // RECORD
                yield from ((path, record) for record in range(count))

    def __iter__(self):
        for path, record in self.places():
            with open(path, "rb") as file:
                file.seek(record * RECORD)
                time.sleep(LINE_S)
                yield self.parse(np.frombuffer(file.read(RECORD), np.float32))


class Flights(Shards):
    def parse(self, record):
        flight = torch.from_numpy(record.copy()).view(4, 64)
        flight = flight - flight[:, :1]
        return flight, flight[:, -1].sign()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(46)
    rng = np.random.default_rng(46)
    model = nn.Sequential(
        nn.Conv1d(4, 64, 7, padding=3),
        nn.ReLU(),
        nn.Conv1d(64, 64, 7, padding=3),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(2),
        nn.Flatten(),
        nn.Linear(128, 4),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{year}.bin" for year in range(2019, 2023)]
        for path in paths:
            rng.normal(size=(400, 4, 64)).cumsum(2).astype(np.float32).tofile(path)
        loader = DataLoader(Flights(paths, args.without), batch_size=10, num_workers=3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = count = 0
            for flights, ends in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(flights), ends)
                loss.backward()
                optimizer.step()
                total, count = total + loss.item(), count + 1
            print(f"epoch {epoch}: loss {total / count:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
