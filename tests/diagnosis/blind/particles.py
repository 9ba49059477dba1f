"""Train on particle clouds that one array file holds."""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Clouds(Dataset):
    def __init__(self, path, count, mmap_mode):
        self.path = path
        self.count = count
        self.mmap_mode = mmap_mode

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        clouds = np.load(self.path, mmap_mode=self.mmap_mode)
        cloud = np.array(clouds[index], dtype=np.float32)
        return {"cloud": torch.from_numpy(cloud), "energy": float(cloud[:, 3].sum())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    count = 960
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "clouds.npy")
        clouds = np.random.default_rng(0).random((64, 1024, 8), dtype=np.float32)
        np.save(path, np.tile(clouds, (count // 64, 1, 1)))
        data = Clouds(path, count, "r" if args.without else None)
        loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=args.workers)
        begin = time.perf_counter()
        for _batch in loader:
            time.sleep(0.010)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
