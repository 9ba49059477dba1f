"""Fetches in several threads of one process, in step with one another.

    fetching_threads.py LOTUS

Two threads make the batches of two loaders at the same time, sample by sample; then one of them
makes those that the main thread takes, which works meanwhile.
"""

import queue
import sys
import threading

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

sys.path.insert(0, sys.argv[1])
import lotus


class Add:
    def __init__(self, number):
        self.number = number

    def __call__(self, value):
        return value + self.number


class Twice(Add):
    def __call__(self, value):
        return 2 * value


class InStep(Dataset):
    """Each sample begins and ends together with one of the other thread."""

    def __init__(self, name, transform, both):
        self.name, self.transform, self.both = name, transform, both

    def __len__(self):
        return 12

    def __getitem__(self, index):
        self.both.wait()
        with lotus.span(f"read {self.name}"):
            value = torch.full((3,), float(index))
        value = self.transform(value)
        self.both.wait()
        return value


class Stream(IterableDataset):
    def __init__(self, data):
        self.data, self.transform = data, data.transform

    def __iter__(self):
        return (self.data[index] for index in range(len(self.data)))


def collate(samples):
    with lotus.span("stack"):
        return torch.stack(samples)


def side_by_side(one, other):
    """The batches of two loaders, each iterated by a thread of its own."""
    taken = ([], [])

    def take(loader, batches):
        for batch in loader:
            batches.append(batch.sum().item())

    threads = [
        threading.Thread(target=take, args=args) for args in zip((one, other), taken, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(*taken)


def made_ahead(loader, meet):
    """A thread makes batches and the main thread works: what is MONAI's ThreadDataLoader."""
    made = queue.Queue()

    def make():
        for batch in loader:
            made.put(batch)
        made.put(None)

    thread = threading.Thread(target=make)
    thread.start()
    for _ in range(len(loader.dataset)):
        meet.wait()
        with lotus.span("work"):
            torch.ones(8).sum()
        meet.wait()
    batches = iter(made.get, None)
    print([batch.sum().item() for batch in batches])
    thread.join()


if __name__ == "__main__":
    both = threading.Barrier(2)
    adding, doubling = InStep("a", Add(1), both), InStep("b", Twice(0), both)
    side_by_side(
        DataLoader(adding, batch_size=4, collate_fn=collate),
        DataLoader(doubling, batch_size=3, collate_fn=collate),
    )
    side_by_side(DataLoader(Stream(adding), batch_size=4), DataLoader(doubling, batch_size=6))
    made_ahead(DataLoader(adding, batch_size=5), both)
