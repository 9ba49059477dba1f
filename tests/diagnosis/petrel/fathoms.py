"""Predicts depths from soundings, which are kept as Python objects; workers are spawned.

Planted: all soundings are pickled for each of two workers, at the begin of every epoch.
"""

import argparse
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Sounding:
    latitude: float
    longitude: float
    vessel: str
    depth: float


class Columns:
    """The same soundings in three arrays."""

    def __init__(self, soundings):
        self.places = np.array([(one.latitude, one.longitude) for one in soundings], np.float32)
        self.depths = np.array([one.depth for one in soundings], np.float32)

    def __len__(self):
        return len(self.depths)

    def row(self, index):
        return self.places[index], self.depths[index]


class Objects:
    def __init__(self, soundings):
        self.soundings = soundings

    def __len__(self):
        return len(self.soundings)

    def row(self, index):
        one = self.soundings[index]
        return np.array((one.latitude, one.longitude), np.float32), np.float32(one.depth)


class Chart(Dataset):
    def __init__(self, table, shown):
        self.table, self.shown = table, shown

    def __len__(self):
        return self.shown

    def __getitem__(self, index):
        place, depth = self.table.row(index * 31 % len(self.table))
        angles = np.outer(place, 2.0 ** np.arange(8)).ravel()
        return np.concatenate([np.sin(angles), np.cos(angles)]).astype(np.float32), depth


def sound(count):
    draw = random.Random(223)
    return [
        Sounding(draw.random(), draw.random(), f"vessel {draw.randrange(90)}", draw.random() * 80)
        for _ in range(count)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(223)
    soundings = sound(150_000)
    chart = Chart(Columns(soundings) if args.without else Objects(soundings), 4000)
    loader = DataLoader(
        chart,
        batch_size=100,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=args.without,
    )
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for places, depths in loader:
            loss = nn.functional.smooth_l1_loss(model(places), depths)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
