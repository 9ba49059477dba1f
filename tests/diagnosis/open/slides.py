"""Train on tiles cut from one large archive file."""

import argparse
import contextlib
import multiprocessing
import os
import tempfile
import time
import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class TileArchive(Dataset):
    """Tiles lie one after another in one file, each compressed by itself."""

    def __init__(self, path, offsets, guard):
        self.path = path
        self.offsets = offsets
        self.guard = guard
        self.file = None

    def __len__(self):
        return len(self.offsets) - 1

    def read(self, begin, end):
        if self.file is None:
            self.file = open(self.path, "rb")  # noqa: SIM115
        time.sleep(0.006)  # seek time of the network mount
        self.file.seek(begin)
        return zlib.decompress(self.file.read(end - begin))

    def __getitem__(self, index):
        with self.guard:
            raw = self.read(self.offsets[index], self.offsets[index + 1])
        tile = torch.from_numpy(np.frombuffer(raw, np.uint8).reshape(3, 64, 64).copy())
        return tile.float().div_(255), index % 5


def build(path, count):
    rng = np.random.default_rng(0)
    offsets = [0]
    with open(path, "wb") as file:
        for _ in range(count):
            tile = rng.integers(0, 8, (3, 64, 64), dtype=np.uint8)
            offsets.append(offsets[-1] + file.write(zlib.compress(tile.tobytes(), 1)))
    return offsets


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "slides.bin")
        offsets = build(path, 800)
        guard = contextlib.nullcontext() if args.without else multiprocessing.Lock()
        tiles = TileArchive(path, offsets, guard)
        loader = DataLoader(tiles, batch_size=20, shuffle=True, num_workers=args.workers)
        begin = time.perf_counter()
        for _tile, _label in loader:
            time.sleep(0.020)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
