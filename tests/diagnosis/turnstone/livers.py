"""Finds lesions in slices of livers, with their two neighbours, on an accelerator (a pause here).

Planted: the cache of unpacked volumes has two places, from a time with two volumes; now there are
nine in any order, and nearly every slice has a whole volume unpacked for it.
"""

import argparse
import functools
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SHAPE, VOLUMES = (50, 144, 144), 9


def made_up_volume(rng):
    volume = rng.integers(-80, 80, SHAPE, dtype=np.int16)
    depth, height, width = (rng.integers(20, size - 20) for size in SHAPE)
    volume[depth - 9 : depth + 9, height - 19 : height + 19, width - 19 : width + 19] += 60
    return volume


class Volumes:
    """Volumes in compressed files, the last of them unpacked in memory."""

    def __init__(self, paths, places=2):
        self.paths, self.places = paths, places
        self.get = functools.lru_cache(places)(self.unpack)

    def unpack(self, number):
        with np.load(self.paths[number]) as file:
            return file["volume"]

    def __reduce__(self):
        return Volumes, (self.paths, self.places)


class Slices(Dataset):
    def __init__(self, volumes):
        self.volumes = volumes

    def __len__(self):
        return len(self.volumes.paths) * (SHAPE[0] - 2)

    def __getitem__(self, index):
        number, depth = divmod(index, SHAPE[0] - 2)
        three = self.volumes.get(number)[depth : depth + 3]
        window = np.clip(three, -60, 120).astype(np.float32)
        window = (window + 60) / 180
        return torch.from_numpy(window), float(window[1].mean() > 0.36)


class Accelerator:
    """Trains for some time with each batch, and needs no core."""

    def __init__(self):
        self.weights = torch.zeros(3)

    def train(self, windows, targets):
        time.sleep(0.02)
        features = windows.mean((2, 3))
        error = targets.float() - features @ self.weights
        self.weights += 0.05 * error @ features / len(targets)
        return error.square().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1009)
    rng = np.random.default_rng(1009)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.npz") for number in range(VOLUMES)]
        for path in paths:
            np.savez_compressed(path, volume=made_up_volume(rng))
        volumes = Volumes(paths, VOLUMES) if args.without else Volumes(paths)
        loader = DataLoader(
            Slices(volumes), batch_size=12, shuffle=True, num_workers=2, persistent_workers=True
        )
        accelerator = Accelerator()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for windows, targets in loader:
                error = accelerator.train(windows, targets)
            print(f"epoch {epoch}: error {error:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
