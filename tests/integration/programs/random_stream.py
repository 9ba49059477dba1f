"""A stream of samples cut at random places: each worker makes a part of them, or as many as all."""

import random
import sys

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Windows(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        count = 96
        if worker is not None and sys.argv[1] == "divided":
            count //= worker.num_workers
        for _ in range(count):
            start = random.randrange(1000)
            yield torch.arange(start, start + 20).float()


if __name__ == "__main__":
    torch.manual_seed(5)
    loader = DataLoader(Windows(), batch_size=8, num_workers=2)
    for epoch in range(2):
        print(epoch, [windows[:, 0].tolist() for windows in loader])
