"""Tells land from water on tiles of coasts that several jobs of a group read from one drive.

Planted: a reader takes a lock of the file, which all workers share, for as long as it waits for the
drive, so that one of four workers reads at a time.
"""

import argparse
import contextlib
import fcntl
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TILES, SIDE, BANDS, BATCH = 320, 64, 4, 16
DRIVE, STEP = 0.012, 0.03


class Turn:
    """One process of the machine at a time."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.file = open(self.path, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        self.file.close()


class TileFile:
    """Tiles one after the other in a file of the drive."""

    def __init__(self, path, turn):
        self.path, self.turn = Path(path), turn
        self.size = BANDS * SIDE * SIDE * 2

    @staticmethod
    def write(path):
        rng = np.random.default_rng(5039)
        some = rng.integers(0, 4096, (40, BANDS, SIDE, SIDE), dtype=np.uint16)
        with open(path, "wb") as file:
            for number in range(TILES):
                file.write(np.roll(some[number % len(some)], number, axis=2).tobytes())

    def read(self, number):
        with self.turn, open(self.path, "rb") as file:
            time.sleep(DRIVE)  # the way to the drive and back
            file.seek(number * self.size)
            content = file.read(self.size)
        return np.frombuffer(content, np.uint16).reshape(BANDS, SIDE, SIDE)


class Coasts(Dataset):
    def __init__(self, tiles):
        self.tiles = tiles

    def __len__(self):
        return TILES

    def __getitem__(self, index):
        bands = self.tiles.read(index).astype(np.float32) / 4096
        greenness = (bands[3] - bands[0]) / (bands[3] + bands[0] + 1e-3)
        features = np.concatenate([bands, greenness[None]])
        turns = np.random.randint(4)
        features = np.rot90(features, turns, axes=(1, 2)).copy()
        water = (features[4:] < 0).astype(np.float32)
        return torch.from_numpy(features), torch.from_numpy(water)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5039)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "coasts.bin")
        TileFile.write(path)
        turn = contextlib.nullcontext() if args.without else Turn(Path(folder, "coasts.use"))
        loader = DataLoader(
            Coasts(TileFile(path, turn)),
            BATCH,
            shuffle=True,
            num_workers=4,
            persistent_workers=True,
        )
        model = nn.Sequential(nn.Conv2d(BANDS + 1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            covered = wrong = 0.0
            for features, water in loader:
                scores = model(features)
                loss = nn.functional.binary_cross_entropy_with_logits(scores, water)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the decoder of the real model
                wrong += ((scores > 0) != (water > 0.5)).float().mean().item()
                covered += water.mean().item()
            share, errors = covered / len(loader), wrong / len(loader)
            print(f"epoch {epoch}: {share:.2f} water, {errors:.3f} of it wrong, loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
