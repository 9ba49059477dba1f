"""Predicts when a rider leaves the peloton, from the power that all riders send."""

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

RACES, RIDERS, SECONDS, PAST, BATCH = 12, 60, 3600, 600, 32


def write(folder):
    rng = np.random.default_rng(7)
    for race in range(RACES):
        power = rng.gamma(9, 25, (RIDERS, SECONDS)).astype(np.float32)
        np.save(folder / f"race{race:02d}.npy", power)


def smooth(power, seconds):
    total = np.cumsum(np.insert(power, 0, 0.0, axis=-1), axis=-1)
    return (total[..., seconds:] - total[..., :-seconds]) / seconds


def features(power):
    """A rider's power over windows of several lengths, and what is left above the threshold."""
    rows = [smooth(power, seconds)[:PAST] for seconds in (1, 5, 15, 30, 60, 120)]
    balance, left = np.empty(PAST, np.float32), 20_000.0
    for second in range(PAST):
        left = min(20_000.0, left - (power[second] - 240.0) * (1.0 if left > 0 else 0.5))
        balance[second] = left
    rows = [np.pad(row, (0, PAST - len(row)), mode="edge") for row in rows]
    return torch.from_numpy(np.stack([*rows, balance / 100])).float() / 200


class Riders(IterableDataset):
    def __init__(self, files, split):
        self.files, self.split = files, split

    def __iter__(self):
        files = list(self.files)
        worker = get_worker_info()
        if self.split and worker:
            files = files[worker.id :: worker.num_workers]
        random.shuffle(files)
        for file in files:
            race = np.load(file, mmap_mode="r")
            for rider in random.sample(range(RIDERS), RIDERS):
                for _ in range(2):
                    start = random.randrange(SECONDS - PAST - 300)
                    part = race[rider, start : start + PAST + 300]
                    left = float(part[PAST:].mean() < 224)
                    yield features(part[:PAST]), left


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        loader = DataLoader(
            Riders(sorted(folder.glob("*.npy")), args.without),
            BATCH,
            num_workers=4,
            persistent_workers=True,
            multiprocessing_context="spawn",
        )
        model = nn.Sequential(
            nn.Conv1d(7, 96, 9, stride=2), nn.ReLU(), nn.Conv1d(96, 96, 9, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(384, 1),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for power, left in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(
                    model(power)[:, 0], left.float()
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
