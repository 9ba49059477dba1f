"""Train on map tiles kept in a cache folder."""

import argparse
import contextlib
import fcntl
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class FileLock:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.file = open(self.path, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *error):
        self.file.close()


class TileCache(Dataset):
    def __init__(self, folder, count, locked, transform=None):
        self.folder = Path(folder)
        self.count = count
        self.locked = locked
        self.transform = transform

    def __len__(self):
        return self.count

    def load(self, name):
        lock = FileLock(self.folder / ".lock") if self.locked else contextlib.nullcontext()
        with lock:
            with np.load(self.folder / name) as stored:
                tile = stored["tile"]
            time.sleep(0.004)  # checked against the tile server
        return tile

    def __getitem__(self, index):
        tile = torch.from_numpy(self.load(f"{index % 48}.npz"))
        return self.transform(tile) if self.transform else tile


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        for number in range(48):
            tile = rng.integers(0, 64, (3, 64, 64), dtype=np.uint8)
            np.savez(Path(folder, f"{number}.npz"), tile=tile)
        transform = v2.Compose([v2.RandomCrop(56), v2.ToDtype(torch.float32, scale=True)])
        tiles = TileCache(folder, 1000, not args.without, transform)
        loader = DataLoader(tiles, 20, shuffle=True, num_workers=args.workers)
        begin = time.perf_counter()
        for _tiles in loader:
            time.sleep(0.020)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
