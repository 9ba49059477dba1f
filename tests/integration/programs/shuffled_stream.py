"""A stream of samples, shuffled in each worker: each has its part of them, or all of them."""

import random
import sys

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    """240 samples, in an order of each worker's own."""

    def __iter__(self):
        worker = get_worker_info()
        mine = range(240)[worker.id :: 2] if sys.argv[1] == "divided" else range(240)
        for number in random.sample(mine, len(mine)):
            yield torch.tensor([number, number + 0.5]), number


if __name__ == "__main__":
    torch.manual_seed(5)
    loader = DataLoader(Stream(), batch_size=8, num_workers=2)
    for epoch in range(2):
        print(epoch, [numbers.tolist() for _, numbers in loader])
