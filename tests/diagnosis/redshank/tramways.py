"""Predicts how late a tram will be at its next stop, from what the days before it were like."""

import argparse
import random
import tempfile
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

DAYS, LINES, STOPS, TRIPS, BATCH = 40, 24, 40, 60, 32


def write(folder):
    rng = np.random.default_rng(12)
    for day in range(DAYS):
        late = rng.gamma(2, 40, (LINES, TRIPS, STOPS)).round().astype(np.float32)
        np.savez_compressed(folder / f"day{day:02d}.npz", late=late)


class Days:
    """Days of the network, of which the last ones asked for are kept in memory."""

    def __init__(self, folder, kept):
        self.folder, self.kept, self.cached = folder, kept, None

    def read(self, day):
        with np.load(self.folder / f"day{day:02d}.npz") as file:
            return file["late"]

    def __getitem__(self, day):
        if self.cached is None:
            self.cached = lru_cache(maxsize=self.kept)(self.read)
        return self.cached(day)


class Trips(IterableDataset):
    def __init__(self, days, samples):
        self.days, self.samples = days, samples

    def weekday(self, day, line, trip):
        """The same trip on the day itself and a week before."""
        rows = [self.days[day][line, trip], self.days[day - 7][line, trip]]
        order = np.argsort(self.days[day][line], axis=None).argsort().reshape(TRIPS, STOPS)
        return np.stack([*rows, order[trip] / order.size * 100])

    def __iter__(self):
        worker = get_worker_info()
        rng = random.Random(torch.initial_seed())
        for _ in range(self.samples // worker.num_workers):
            day, line = rng.randrange(7, DAYS), rng.randrange(LINES)
            trip, stop = rng.randrange(TRIPS), rng.randrange(8, STOPS)
            seen = torch.from_numpy(self.weekday(day, line, trip)).float() / 60
            target = seen[0, stop].clone()
            seen[0, stop:] = 0
            yield seen, torch.tensor(line), target


class Lateness(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.lines = nn.Embedding(LINES, 16)
        self.body = nn.Sequential(
            nn.Linear(3 * STOPS + 16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, seen, line):
        return self.body(torch.cat([seen.flatten(1), self.lines(line)], 1))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        loader = DataLoader(
            Trips(Days(folder, DAYS if args.without else 3), 3200),
            BATCH,
            num_workers=4,
            persistent_workers=True,
            multiprocessing_context="forkserver",
        )
        model = Lateness()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for seen, lines, late in loader:
                loss = nn.functional.l1_loss(model(seen, lines), late)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
