"""Forecasts how many shoes are brought for repair, from the hours of many shops.

Planted: for each window, the data set counts the hours since the last holiday by going through the
shop's calendar in Python, hour by hour, though the answer could be looked up.
"""

import argparse
import bisect
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision.transforms import v2

SHOPS, HOURS, PAST, AHEAD, EVERY, BATCH, FIRST = 24, 12_000, 96, 24, 240, 16, datetime(2019, 1, 1)


def write_shops(folder):
    rng = np.random.default_rng(5153)
    hours = np.arange(HOURS)
    for shop in range(SHOPS):
        daily = 3 * np.sin(hours * 2 * np.pi / 24 + shop)
        shoes = np.maximum(daily + rng.normal(4, 1, HOURS), 0).astype(np.float32)
        holidays = np.sort(rng.choice(HOURS // 24, 60, replace=False))
        np.savez(Path(folder, f"shop-{shop:02}.npz"), shoes=shoes, holidays=holidays)


class Jitter:
    def __call__(self, window):
        return window + 0.05 * torch.randn_like(window)


class Scale:
    def __call__(self, window):
        return window * (0.9 + 0.2 * torch.rand(()))


class Repairs(IterableDataset):
    """Windows of the hours before, and the hours to forecast."""

    def __init__(self, paths, transform, by_table):
        self.paths, self.transform = paths, transform
        self.since = self.since_by_table if by_table else self.since_by_hour

    def since_by_hour(self, hour, holidays):
        moment, last = FIRST + timedelta(hours=hour), FIRST
        known = [FIRST + timedelta(days=day) for day in holidays]
        past = FIRST
        while past <= moment:
            if past in known:
                last = past
            past += timedelta(hours=1)
        return (moment - last) / timedelta(hours=1)

    def since_by_table(self, hour, holidays):
        place = bisect.bisect_right(holidays, hour // 24)
        return float(hour - 24 * holidays[place - 1]) if place else float(hour)

    def __iter__(self):
        worker = get_worker_info()
        mine = self.paths[worker.id :: worker.num_workers] if worker else self.paths
        for path in mine:
            with np.load(path) as shop:
                shoes, holidays = torch.from_numpy(shop["shoes"]), shop["holidays"].tolist()
            for begin in range(0, HOURS - PAST - AHEAD, EVERY):
                now = begin + PAST
                since = self.since(now, holidays)
                window = self.transform(shoes[begin:now])
                yield torch.cat([window, torch.tensor([since / 1000])]), shoes[now : now + AHEAD]


def train_epoch(model, optimizer, loader):
    total = steps = 0
    for windows, ahead in loader:
        loss = nn.functional.l1_loss(model(windows), ahead)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, steps = total + loss.item(), steps + 1
    return total / steps


@torch.no_grad()
def validate(model, loader):
    losses = [nn.functional.l1_loss(model(windows), ahead).item() for windows, ahead in loader]
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(5153)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_shops(folder)
        paths = sorted(Path(folder).glob("shop-*.npz"))
        training = Repairs(paths[1:], v2.Compose([Jitter(), Scale()]), args.without)
        validation = Repairs(paths[:1], v2.Identity(), args.without)
        loader = DataLoader(training, BATCH, num_workers=4, multiprocessing_context="spawn")
        held_out = DataLoader(validation, BATCH)
        model = nn.Sequential(nn.Linear(PAST + 1, 64), nn.ReLU(), nn.Linear(64, AHEAD))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        print(f"before: {validate(model, held_out):.3f}")
        for epoch in range(args.epochs):
            loss = train_epoch(model, optimizer, loader)
            print(f"epoch {epoch}: loss {loss:.3f}, held out {validate(model, held_out):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
