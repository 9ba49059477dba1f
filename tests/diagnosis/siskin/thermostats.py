"""Foretells the warmth of a flat for the next day, from its thermostat and the season."""

import argparse
import multiprocessing
import statistics
import time
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torchvision.transforms import v2

FLATS, HOURS, PAST, AHEAD, BATCH, STEP = 320, 24 * 365 * 2, 96, 24, 32, 0.006


def measured(seed):
    rng = np.random.default_rng(seed)
    hours = np.arange(HOURS)
    season = 4 * np.sin(hours * 2 * np.pi / 8760) + np.sin(hours * 2 * np.pi / 24)
    return (20 + season + rng.normal(0, 0.5, (FLATS, HOURS))).astype(np.float32)


def usual(warmth):
    """Return the usual warmth of each flat at each hour of the week, (flats, hours)."""
    table = np.zeros((FLATS, 168), np.float32)
    for flat, series in enumerate(warmth):
        by_hour = [[] for _ in range(168)]
        for hour, degrees in enumerate(series.tolist()):
            by_hour[hour % 168].append(degrees)
        for hour, degrees in enumerate(by_hour):
            degrees.sort()
            kept = degrees[len(degrees) // 10 : -(len(degrees) // 10)]
            table[flat, hour] = statistics.mean(kept)
    return table


class Days(Dataset):
    def __init__(self, warmth, days, table=None):
        self.warmth, self.days, self.usual = warmth, days, table
        self.change = v2.Compose(
            [v2.GaussianNoise(0, 0.05, clip=False), v2.Normalize([0.0], [4.0])]
        )

    def __len__(self):
        return FLATS * len(self.days)

    def __getitem__(self, index):
        flat, day = index % FLATS, self.days[index // FLATS]
        hours = np.arange(day * 24 - PAST, day * 24 + AHEAD)
        off = torch.from_numpy(self.warmth[flat, hours] - self.usual[flat, hours % 168])
        past = self.change(off[None, None, :PAST])
        return past[0], off[PAST:] / 4


def start(seed, worker):
    dataset = get_worker_info().dataset
    dataset.usual = usual(dataset.warmth)
    np.random.seed(seed + worker)


def network():
    return nn.Sequential(
        nn.Conv1d(1, 32, 7, stride=2), nn.ReLU(), nn.Conv1d(32, 32, 5, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 21, AHEAD),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torchvision.transforms.v2"])
    warmth = measured(31)
    begin = time.perf_counter()
    table = usual(warmth) if args.without else None
    options = {
        "batch_size": BATCH,
        "num_workers": 2,
        "worker_init_fn": None if args.without else partial(start, 31),
        "multiprocessing_context": context,
    }
    training = DataLoader(Days(warmth, range(400, 414), table), shuffle=True, **options)
    validation = DataLoader(Days(warmth, range(500, 502), table), **options)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for past, ahead in training:
            loss = nn.functional.l1_loss(model(past), ahead)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
        with torch.no_grad():
            off = [(model(past) - ahead).abs().mean() for past, ahead in validation]
        print(f"epoch {epoch}: off by {4 * torch.stack(off).mean():.2f} degrees")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
