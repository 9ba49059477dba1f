"""Train on survey images with a collate function for NumPy arrays."""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Survey(Dataset):
    def __init__(self, count, size=192, bands=5):
        rng = np.random.default_rng(0)
        self.fields = rng.random((8, bands, size, size), dtype=np.float32)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {"image": self.fields[index % 8], "redshift": np.float32(index / self.count)}


def numpy_collate(samples):
    return {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}


class Fit:
    def __init__(self, loader):
        self.loader = loader
        self.steps = 0

    def step(self, batch):
        self.steps += 1
        time.sleep(0.005)

    def run(self):
        begin = time.perf_counter()
        for batch in self.loader:
            self.step(batch)
        return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(
        Survey(2400),
        batch_size=32,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=None if args.without else numpy_collate,
    )
    print(f"seconds {Fit(loader).run():.3f}")


if __name__ == "__main__":
    main()
