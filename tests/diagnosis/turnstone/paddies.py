"""Tells wet fields from dry ones on satellite tiles, which come from a store in another city.

Planted: since two workers once wrote the same file of the cache, a base class holds one lock over
the whole of a read, also while the store is asked, so that the workers ask one after another.
"""

import argparse
import contextlib
import fcntl
import io
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

TILES, SIDE, LATENCY = 640, 96, 0.012


class Store:
    """Answers after some time with a PNG file."""

    def __init__(self):
        rng = np.random.default_rng(1021)
        self.files = []
        for wet in (False, True) * 16:
            tile = rng.integers(0, 90, (SIDE, SIDE, 3), dtype=np.uint8)
            tile[..., 2] += 60 if wet else 0
            file = io.BytesIO()
            Image.fromarray(tile).save(file, "PNG")
            self.files.append(file.getvalue())

    def get(self, number):
        time.sleep(LATENCY)
        return self.files[number % len(self.files)]


class SafeReads(Dataset):
    """Reads files in an order that is safe with several processes."""

    safe = True

    def __init__(self, folder):
        self.path = Path(folder, "lock")
        self.path.touch()

    @contextlib.contextmanager
    def alone(self):
        with self.path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def __getitem__(self, index):
        with self.alone() if self.safe else contextlib.nullcontext():
            content = self.read(index)
        return self.made(index, content)


class Tiles(SafeReads):
    def __init__(self, store, folder):
        super().__init__(folder)
        self.store = store

    def __len__(self):
        return TILES

    def read(self, index):
        return self.store.get(index)

    def made(self, index, content):
        tile = np.asarray(Image.open(io.BytesIO(content)), dtype=np.float32) / 255
        greenness = (tile[..., 1] - tile[..., 0]) / (tile[..., 1] + tile[..., 0] + 0.1)
        layers = np.concatenate([tile.transpose(2, 0, 1), greenness[None]])
        return torch.from_numpy(np.rot90(layers, index % 4, (1, 2)).copy()), index % 2


class Accelerator:
    """Trains for some time with each batch, and needs no core."""

    def __init__(self):
        self.weights = torch.zeros(4)

    def train(self, tiles, wet):
        time.sleep(0.05)
        means = tiles.mean((2, 3))
        error = wet.float() - means @ self.weights
        self.weights += 0.1 * error @ means / len(wet)
        return error.square().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1021)
    SafeReads.safe = not args.without
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Tiles(Store(), folder), batch_size=16, shuffle=True, num_workers=4,
            persistent_workers=True,
        )  # fmt: skip
        accelerator = Accelerator()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for tiles, wet in loader:
                error = accelerator.train(tiles, wet)
            print(f"epoch {epoch}: error {error:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
