"""Loads samples until each worker waits for a lock that is never released.

    hanging.py MOVING [WORKERS]

The first MOVING samples are made; the lock is taken with the next one.
"""

import multiprocessing
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Locked(Dataset[torch.Tensor]):
    def __init__(self, moving: int) -> None:
        self.moving, self.lock = moving, multiprocessing.Lock()

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.moving:
            self.lock.acquire()
        time.sleep(0.005)
        return torch.zeros(4)


def main() -> None:
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    for batch in DataLoader(Locked(int(sys.argv[1])), batch_size=4, num_workers=workers):
        time.sleep(0.001 * len(batch))


if __name__ == "__main__":
    main()
