"""Iterates and indexes for a long time; prints how much memory it uses more than when warm.

Where an allocator takes memory in large pieces it does so now and then; what leaks grows in each
stretch of the same length. So what is printed is the growth of the stretch that had least.
"""

import gc
import itertools
import resource
import sys

from pipeline import Add, Numbers
from torch.utils.data import DataLoader

ROUNDS = 4_000
STRETCHES, LITTLE = 4, 1 << 18  # at most so many, until one grows by so little


def used():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def epochs(data):
    """A loader that lives, and an epoch in which it is left."""
    loader = DataLoader(data, batch_size=8, collate_fn=list)
    for number in range(ROUNDS // 8):
        for place, _ in enumerate(loader):
            if number % 2 and place == 3:
                break


def loaders(data):
    """Loaders that do not live long."""
    for _ in range(ROUNDS // 4):
        list(DataLoader(data, batch_size=64, collate_fn=list))


def by_hand(data):
    """The data set alone, outside of any loader."""
    for index in range(ROUNDS * 8):
        data[index % 64]


def worker(data):
    """One worker makes many batches; with --batches most are not recorded."""
    loader = DataLoader([0] * ROUNDS * 4, collate_fn=used_at, num_workers=1)
    figures = list(loader)
    places = [(len(figures) - 1) * quarter // 4 for quarter in range(1, 5)]
    grown = [figures[end] - figures[begin] for begin, end in itertools.pairwise(places)]
    print("worker", len(grown) * min(grown))


def used_at(samples):
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main():
    data = Numbers(64, [Add(1)])
    for what in (epochs, loaders, by_hand):
        what(data)
        least = 1 << 40
        for _ in range(STRETCHES):
            before = used()
            what(data)
            least = min(least, used() - before)
            if least < LITTLE:
                break
        print(what.__name__, least)
    worker(data)


if __name__ == "__main__":
    sys.exit(main())
