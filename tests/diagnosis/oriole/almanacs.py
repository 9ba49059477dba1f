"""Forecasts the warmth of an evening from the hours before it, out of station almanacs.

Planted: a sample is one day, but the whole compressed year is read and unpacked for it.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, random_split

STATIONS, DAYS, HOURS, FIELDS, BATCH, STEP = 8, 100, 48, 32, 16, 0.03


class Year:
    """The measurements of a station in a year."""

    def __init__(self, stem, packed):
        self.stem, self.packed = stem, packed
        self.rows = None

    def day(self, number):
        if self.packed:
            with np.load(f"{self.stem}.npz") as almanac:
                return almanac["hourly"][number]
        if self.rows is None:
            self.rows = np.load(f"{self.stem}.npy", mmap_mode="r")
        return np.array(self.rows[number])


class Station(Dataset):
    def __init__(self, year):
        self.year = year

    def __len__(self):
        return DAYS

    def __getitem__(self, index):
        hours = self.year.day(index).astype(np.float32)
        target = hours[-6:, 0].mean()
        return torch.from_numpy(hours[:-6]), torch.tensor(target)


class Jittered(Dataset):
    """Disturbs and smooths the fields of a data set's samples."""

    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        hours, target = self.inner[index]
        for _ in range(3):
            hours = hours + 0.05 * torch.randn_like(hours)
            hours = nn.functional.avg_pool1d(hours.T[None], 3, 1, 1)[0].T
        return hours.contiguous(), target


def write(folder, rng):
    for station in range(STATIONS):
        days = rng.normal(12, 5, (DAYS, HOURS, FIELDS)).cumsum(axis=1) / 10
        days = np.round(days, 1).astype(np.float32)
        np.savez_compressed(Path(folder, f"{station}.npz"), hourly=days)
        np.save(Path(folder, f"{station}.npy"), days)


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        errors = [nn.functional.l1_loss(model(hours), target) for hours, target in loader]
    model.train()
    return torch.stack(errors).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    try:
        write(folder, np.random.default_rng(31))
        years = [Year(str(Path(folder, str(n))), not args.without) for n in range(STATIONS)]
        stations = ConcatDataset([Station(year) for year in years])
        some = Subset(stations, torch.randperm(len(stations))[:700].tolist())
        train, held = random_split(some, [660, 40])
        loader = DataLoader(
            Jittered(train), BATCH, shuffle=True, num_workers=1, persistent_workers=True
        )
        checks = DataLoader(held, BATCH)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear((HOURS - 6) * FIELDS, 64), nn.ReLU(), nn.Linear(64, 1)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for hours, target in loader:
                loss = nn.functional.mse_loss(model(hours).squeeze(1), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the large network, elsewhere
            error = validate(nn.Sequential(model, nn.Flatten(0)), checks)
            torch.save(model.state_dict(), Path(folder, f"epoch-{epoch}.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}, error {error:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
