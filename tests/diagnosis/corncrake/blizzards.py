"""Forecasts blizzards from hourly records of stations, streamed from the shards of an archive."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, WINDOWS, HOURS, BATCH = 8, 40, 48, 16


def write_archive(folder):
    """One file per four days; the number of a shard is the day that it begins with."""
    rng = np.random.default_rng(67)
    for number in range(SHARDS):
        records = rng.normal(0, 1, (WINDOWS, HOURS + 1)).cumsum(1).astype(np.float32)
        np.save(Path(folder, f"stations-{number * 4:04}.npy"), records)


class Archive:
    """Files on a tape library: each record comes after a while."""

    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("stations-*.npy"))

    def records(self, path):
        for record in np.load(path):
            time.sleep(0.01)
            yield record


class Windows(IterableDataset):
    def __init__(self, archive, in_order):
        self.archive, self.in_order = archive, in_order

    def shards(self):
        worker = get_worker_info()
        for position, path in enumerate(self.archive.paths):
            number = position if self.in_order else int(path.stem.split("-")[1])
            if worker is None or number % worker.num_workers == worker.id:
                yield path

    def __iter__(self):
        for path in self.shards():
            for record in self.archive.records(path):
                record = (record - record.mean()) / (record.std() + 1e-3)
                yield torch.from_numpy(record[:-1]), float(record[-1])


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.trend = nn.Linear(HOURS, 1)
        self.rest = nn.Sequential(nn.Linear(HOURS, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, windows):
        return (self.trend(windows) + self.rest(windows)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(67)
    torch.set_num_threads(1)
    model = Forecast()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    with tempfile.TemporaryDirectory() as folder:
        write_archive(folder)
        loader = DataLoader(
            Windows(Archive(folder), in_order=args.without),
            batch_size=BATCH,
            num_workers=4,
            persistent_workers=True,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for windows, following in loader:
                loss = nn.functional.mse_loss(model(windows), following.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
