"""Foretells how long paramedics need to a patient, from the track of their ambulance so far."""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CALLS, POINTS, CELLS, BATCH = 320, 900, 48, 16
RADIUS, FLAT = 6_378_137.0, 0.0066943799901413165


def projected(latitude, longitude):
    """Metres east and north of a place in degrees, as on the maps of the service."""
    phi, away = math.radians(latitude), math.radians(longitude - 9)
    wide = RADIUS / math.sqrt(1 - FLAT * math.sin(phi) ** 2)
    steep, bent = math.tan(phi) ** 2, FLAT / (1 - FLAT) * math.cos(phi) ** 2
    part = away * math.cos(phi)
    along = RADIUS * (
        (1 - FLAT / 4 - 3 * FLAT**2 / 64) * phi
        - (3 * FLAT / 8 + 3 * FLAT**2 / 32) * math.sin(2 * phi)
        + 15 * FLAT**2 / 256 * math.sin(4 * phi)
    )
    east = 0.9996 * wide * (part + (1 - steep + bent) * part**3 / 6)
    north = 0.9996 * (along + wide * math.tan(phi) * (part**2 / 2))
    return 500_000 + east, north


class Tracks(Dataset):
    """Where the ambulance was each second, as a map of its time by cells of 100 metres."""

    def __init__(self):
        rng = np.random.default_rng(52)
        steps = rng.normal(0, 1, (CALLS, POINTS, 2)).cumsum(1) * 4e-4
        self.tracks = np.array([48.1, 8.7]) + steps
        self.minutes = (np.abs(steps[:, -1]).sum(1) * 200).astype(np.float32)
        self.metres = None

    def __len__(self):
        return 3 * CALLS

    def project(self):
        flat = self.tracks.reshape(-1, 2).tolist()
        self.metres = np.array([projected(*place) for place in flat]).reshape(self.tracks.shape)

    def map_of(self, call):
        if self.metres is not None:
            places = self.metres[call]
        else:
            places = np.array([projected(*place) for place in self.tracks[call]])
        cells = ((places - places[0]) / 100 + CELLS / 2).astype(int).clip(0, CELLS - 1)
        counted = np.zeros((1, CELLS, CELLS), np.float32)
        np.add.at(counted[0], (cells[:, 1], cells[:, 0]), 1)
        return np.log1p(counted)

    def __getitem__(self, index):
        call = index % CALLS
        return torch.from_numpy(self.map_of(call)), self.minutes[call]


def network(channels=40):
    return nn.Sequential(
        nn.Conv2d(1, channels, 5, stride=2), nn.ReLU(),
        nn.Conv2d(channels, channels, 3), nn.ReLU(), nn.Conv2d(channels, channels, 3),
        nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * channels, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(52)
    torch.set_num_threads(1)
    dataset = Tracks()
    if args.without:
        dataset.project()
    loader = DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for maps, minutes in loader:
            loss = nn.functional.l1_loss(model(maps)[:, 0], minutes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: off by {loss:.2f} minutes")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
