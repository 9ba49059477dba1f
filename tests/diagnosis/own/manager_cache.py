"""Train on pictures that a manager's process keeps in a dict: each access is a round trip to it."""

import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, kept):
        self.kept = kept

    def __len__(self):
        return 4800

    def __getitem__(self, index):
        return torch.from_numpy(self.kept[index % 64][::8, ::8].copy())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="a plain dict, shared by the fork")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    random = np.random.default_rng(3)
    pictures = {place: random.integers(0, 256, (384, 384, 3), np.uint8) for place in range(64)}
    manager = None if args.without else multiprocessing.Manager()
    kept = pictures if manager is None else manager.dict(pictures)
    loader = DataLoader(Pictures(kept), batch_size=16, num_workers=args.workers)
    begin = time.perf_counter()
    for _batch in loader:
        time.sleep(0.002)  # the accelerator's step
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
