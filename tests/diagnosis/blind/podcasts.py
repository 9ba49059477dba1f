"""Train on podcast chapters, some of which are long."""

import argparse
import time

import numpy as np
from torch.utils.data import DataLoader, Dataset


class Chapters(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(1)
        self.long = rng.random(count) < 0.02

    def __len__(self):
        return len(self.long)

    def __getitem__(self, index):
        time.sleep(0.030 if self.long[index] else 0.001)  # read from the archive
        return np.full(400, index, np.float32), bool(self.long[index])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()

    loader = DataLoader(Chapters(2000), batch_size=16, num_workers=args.workers)
    begin = time.perf_counter()
    for _chapter, _long in loader:
        time.sleep(0.045)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
