"""Data sets that yield whole batches, and one that yields samples, with `batch_size=None`."""

import torch
from torch.utils.data import DataLoader, IterableDataset


class Batches(IterableDataset):
    def __iter__(self):
        for size in (8, 8, 5):
            yield {"image": torch.ones(size, 3, 4, 4), "label": torch.zeros(size)}


class Images(IterableDataset):
    def __iter__(self):
        for label in range(4):
            yield torch.ones(3, 4, 4), label


if __name__ == "__main__":
    for workers in (0, 1):
        for data in (Batches(), Images()):
            for batch in DataLoader(data, batch_size=None, num_workers=workers):
                print(type(batch).__name__, len(batch))
