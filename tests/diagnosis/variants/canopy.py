"""Measure trees in tiles that all workers read over one line, which has a fixed rate."""

import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

RATE = 40e6  # bytes per second


class Line:
    """The time at which the line has carried all that was asked for so far."""

    def __init__(self):
        self.free_at = multiprocessing.Value("d", 0.0)

    def carry(self, size):
        with self.free_at:
            self.free_at.value = max(self.free_at.value, time.monotonic()) + size / RATE
            arrives = self.free_at.value
        time.sleep(max(0.0, arrives - time.monotonic()))


class Tiles(Dataset):
    def __init__(self, count, line):
        self.tiles = np.random.default_rng(21).integers(0, 256, (8, 4, 256, 256), dtype=np.uint8)
        self.count = count
        self.line = line

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        tile = self.tiles[index % 8]
        if self.line is not None:
            self.line.carry(tile.nbytes)
        return torch.from_numpy(tile[:, ::4, ::4].astype(np.float32) / 255)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="the tiles are here already")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()

    tiles = Tiles(1600, None if args.without else Line())
    loader = DataLoader(tiles, batch_size=16, shuffle=True, num_workers=args.workers)
    begin = time.perf_counter()
    for _tiles in loader:
        time.sleep(0.01)  # the accelerator's step
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
