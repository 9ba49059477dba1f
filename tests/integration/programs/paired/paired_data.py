"""Data sets of the features in paired_results.py and paired_errors.py."""

import random
from collections import namedtuple

import numpy
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

Pair = namedtuple("Pair", "x name")


class Scale:
    def __call__(self, value):
        return value * 2.0


class Numbers(Dataset):
    def __init__(self, size=10):
        self.size = size
        self.transform = Scale()

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.transform(torch.tensor([float(index)]))


class Drawn(Numbers):
    """Of every source of random numbers, and who drew."""

    def __getitem__(self, index):
        info = get_worker_info()
        drawn = torch.rand(2), random.random(), float(numpy.random.rand())
        return index, info.id if info else -1, *drawn


class Counting(Numbers):
    """Tells how many samples its own process has made of it before."""

    made = 0

    def __getitem__(self, index):
        self.made += 1
        return index, self.made


class Nested(Numbers):
    """Everything that default_collate knows."""

    def __getitem__(self, index):
        return {
            "pair": Pair(torch.tensor(index), f"name {index}"),
            "list": [index, (float(index), b"bytes")],
            "array": numpy.full((2,), index, numpy.int16),
            "scalar": numpy.float32(index),
            "bool": index % 2 == 0,
        }


class Whole(Numbers):
    """Is asked for whole batches; gives one sample too few where `short`."""

    def __init__(self, short=False):
        super().__init__()
        self.short = short

    def __getitems__(self, indices):
        return [self[index] for index in indices][self.short :]


class Stream(IterableDataset):
    """Shared out among workers; `claims` is what its len is said to be."""

    def __init__(self, size=7, claims=None, fails=None):
        self.size, self.claims, self.fails = size, claims, fails

    def __len__(self):
        if self.claims is None:
            raise TypeError("of unknown length")
        return self.claims

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, self.size, step):
            if index == self.fails:
                raise EOFError(f"cut short at {index}")
            yield torch.tensor(index)


class Closed(IterableDataset):
    """Notes in a file whenever an iteration of it is closed, as one that holds a connection may."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        info = get_worker_info()
        try:
            yield from map(torch.tensor, range(20))
        finally:
            with open(self.path, "a") as file:
                print(f"closed in worker {info.id if info else -1}", file=file)


class NoGenerator(IterableDataset):
    """Its iterator is a list's; another time it is itself."""

    def __init__(self, own):
        self.own, self.left = own, 5

    def __iter__(self):
        return self if self.own else iter([3, 1, 2])

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left


class Pinned:
    """A batch that pins itself."""

    def __init__(self, values):
        self.values = values
        self.was_pinned = False

    def pin_memory(self):
        self.was_pinned = True
        return self


class Picky(Exception):
    """Cannot be made again from its message."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class Fails(Numbers):
    """Raises at index 4 what `make` returns, or does what it does."""

    def __init__(self, make):
        super().__init__(8)
        self.make = make

    def __getitem__(self, index):
        if index == 4:
            raise self.make()
        return index
