"""Recognizes kinds of snow by the sound of steps, from a month of a recorder, a file a day.

Planted: a batch is fetched as a whole, and for it the packed file of each day that it has samples
of is unpacked whole, though the same sound lies beside it unpacked.
"""

import argparse
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DAYS, DAY, STEP, SAMPLES, BATCH, KINDS = 10, 1_600_000, 4000, 640, 16, 4


def write_days(folder):
    rng = np.random.default_rng(5021)
    for day in range(DAYS):
        loudness = 20 * (1 + day % KINDS)
        sound = rng.integers(-loudness, loudness, DAY, dtype=np.int16)
        np.save(Path(folder, f"day-{day:02}.npy"), sound)
        np.savez_compressed(Path(folder, f"day-{day:02}.npz"), sound=sound)


class Steps(Dataset):
    """Steps in the snow, which a detector has found in each day's sound."""

    def __init__(self, folder, packed):
        self.folder, self.packed = Path(folder), packed
        rng = np.random.default_rng(5023)
        self.days = rng.integers(0, DAYS, SAMPLES)
        self.begins = rng.integers(0, DAY - STEP, SAMPLES)

    def __len__(self):
        return SAMPLES

    def day(self, number):
        if self.packed:
            with np.load(self.folder / f"day-{number:02}.npz") as archive:
                return archive["sound"]
        return np.load(self.folder / f"day-{number:02}.npy", mmap_mode="r")

    def __getitems__(self, indices):
        """All samples of a batch, so that each day is opened once."""
        by_day = defaultdict(list)
        for index in indices:
            by_day[self.days[index]].append(index)
        steps = []
        for number, members in by_day.items():
            sound = self.day(number)
            for index in members:
                begin = self.begins[index]
                step = np.array(sound[begin : begin + STEP], np.float32)
                steps.append((torch.from_numpy(step / 100), int(number % KINDS)))
        return steps

    def __getitem__(self, index):
        return self.__getitems__([index])[0]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, 16, 64, stride=16)
        self.second = nn.Conv1d(16, 32, 9, stride=4)
        self.out = nn.Linear(32, KINDS)

    def forward(self, steps):
        hidden = torch.relu(self.first(steps[:, None]))
        hidden = torch.relu(self.second(hidden))
        return self.out(hidden.abs().mean(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5021)
    with tempfile.TemporaryDirectory() as folder:
        write_days(folder)
        loader = DataLoader(
            Steps(folder, packed=not args.without),
            BATCH,
            shuffle=True,
            num_workers=4,
            persistent_workers=True,
            multiprocessing_context="spawn",
        )
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for steps, kinds in loader:
                loss = nn.functional.cross_entropy(model(steps), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            schedule.step()
            print(f"epoch {epoch}: loss {total / len(loader):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
