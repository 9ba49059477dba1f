"""Iterates loaders of the shapes named on the command line."""

import mmap
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy
import torch
import watch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
)


def sample(index, first=0):
    info = get_worker_info()
    return {
        "x": torch.rand(4) + first + index,
        "noise": (random.random(), float(numpy.random.rand())),
        "index": index,
        "worker": info.id if info else -1,
        "pid": os.getpid(),
    }


class Numbers(Dataset):
    def __init__(self, size=10, first=0):
        self.size, self.first = size, first

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if not 0 <= index < self.size:
            raise IndexError(index)
        return sample(index, self.first)


class Behind(Numbers):
    """Worker 0 makes nothing before `ahead` batches of worker 1 are there, on any machine."""

    arrived = mmap.mmap(-1, mmap.PAGESIZE)  # how many; shared with forked workers

    def __init__(self, ahead):
        super().__init__(12)
        self.ahead, self.arrived[0] = ahead, 0

    def __getitem__(self, index):
        while not get_worker_info().id and self.arrived[0] < self.ahead:
            time.sleep(0.001)
        return super().__getitem__(index)


class Telling(dict):
    """A batch that says so when the main process unpickles it."""

    def __reduce__(self):
        return arrive, (dict(self),)


def arrive(batch):
    Behind.arrived[0] += 1
    return batch


def telling(samples):
    return Telling(default_collate(samples))


class Quiet(Numbers):
    """Uses no random numbers, so threads may share it."""

    def __getitem__(self, index):
        time.sleep(0.002)
        info = get_worker_info()
        return {"index": index, "worker": info.id if info else -1, "pid": os.getpid()}


class Stream(IterableDataset):
    """Of uneven length: worker 1 has less to give."""

    def __iter__(self):
        info = get_worker_info()
        worker = info.id if info else 0
        for index in range(9 if worker == 0 else 3):
            yield sample(100 * worker + index)


class Pooled(Numbers):
    """Fetches a whole batch with threads of its own, which live as long as the data set."""

    pool = None

    def __getitems__(self, indices):
        if self.pool is None:
            self.pool = ThreadPoolExecutor(2)
        list(self.pool.map(self.decode, indices))
        return [sample(index) for index in indices]

    def decode(self, index):
        time.sleep(0.001)
        return index


class Outer(Numbers):
    """Its sample is the sum of a loader's batches."""

    def __getitem__(self, index):
        inner = DataLoader(Numbers(3, first=1000), batch_size=2, generator=seeded(index))
        return {**sample(index), "x": sum(batch["x"].sum() for batch in inner)}


class Uneven(BatchSampler):
    def __init__(self):
        pass

    def __iter__(self):
        yield from ([7, 3], [1], [9, 8, 2, 0], [4])

    def __len__(self):
        return 4


class Augmented(DataLoader):
    """A subclass that overrides what users override."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.note = "mine"

    def __iter__(self):
        for batch in super().__iter__():
            batch["x"] = batch["x"] * 2
            yield batch


def as_list(samples):
    return samples


def seeded(number=7):
    return torch.Generator().manual_seed(number)


def twice(loader, **kwargs):
    for _ in range(2):
        watch.epoch(loader, **kwargs)


def workers(method=None, **kwargs):
    return {"num_workers": 2, "multiprocessing_context": method, "batch_size": 3, **kwargs}


def single():
    twice(DataLoader(Numbers(), batch_size=4, shuffle=True), step=0.001)


def fork():
    twice(DataLoader(Numbers(), shuffle=True, generator=seeded(), **workers()), step=0.002)


def spawn():  # once: each of its workers imports torch
    watch.epoch(DataLoader(Numbers(), shuffle=True, **workers("spawn")))


def forkserver():
    watch.epoch(DataLoader(Numbers(), shuffle=True, **workers("forkserver")))


def persistent():
    loader = DataLoader(Numbers(), shuffle=True, persistent_workers=True, **workers())
    twice(loader)
    watch.epoch(loader, limit=1)
    watch.epoch(loader)


def kept():
    """Persistent workers that live until the program ends."""
    global loader
    loader = DataLoader(Numbers(), persistent_workers=True, **workers())
    twice(loader)


def iterable():
    twice(DataLoader(Stream(), batch_size=4))
    twice(DataLoader(Stream(), **workers(batch_size=2)))
    twice(DataLoader(Stream(), **workers(batch_size=2, persistent_workers=True)))
    twice(DataLoader(Stream(), **workers(batch_size=2, drop_last=True)))


def unordered():  # worker 1 gets four batches, as there is always room for one more
    late = {"collate_fn": telling, **workers(batch_size=2)}
    watch.epoch(DataLoader(Behind(4), in_order=False, **late))


def ordered():  # worker 1 gets two before any of worker 0 is taken
    watch.epoch(DataLoader(Behind(2), collate_fn=telling, **workers(batch_size=2)))


def unbatched():
    watch.epoch(DataLoader(Numbers(5), batch_size=None))
    watch.epoch(DataLoader(Numbers(5), **workers(batch_size=None)))
    watch.epoch(DataLoader(Stream(), batch_size=None))
    watch.epoch(DataLoader(Stream(), **workers(batch_size=None)))


def samplers():
    twice(DataLoader(Numbers(), batch_sampler=Uneven()))
    twice(DataLoader(Numbers(), batch_sampler=Uneven(), num_workers=2))
    # A sampler of whole batches, which reach the data set in one call.
    whole = BatchSampler(SequentialSampler(range(6)), 3, False)
    watch.epoch(DataLoader(Lists(), sampler=whole, batch_size=None))
    weighted = WeightedRandomSampler([1.0] * 10, 7)
    watch.epoch(DataLoader(Numbers(), sampler=weighted, **workers(drop_last=True)))


class Lists(Dataset):
    def __getitem__(self, indices):
        return [sample(index) for index in indices]


def collate():
    watch.epoch(DataLoader(Numbers(), batch_size=3, collate_fn=as_list))
    watch.epoch(DataLoader(Numbers(), collate_fn=lambda samples: samples, **workers()))


def subclass():
    twice(Augmented(Numbers(), batch_size=3, shuffle=True))
    twice(Augmented(Numbers(), shuffle=True, **workers()))


def parts():
    both = ConcatDataset([Numbers(4), Subset(Numbers(9, first=50), [8, 0, 5])])
    twice(DataLoader(both, **workers()))


def leave():
    """Break out of the loop and iterate again."""
    for loader in (
        DataLoader(Numbers(), batch_size=2, shuffle=True),
        DataLoader(Numbers(), shuffle=True, **workers()),
    ):
        watch.epoch(loader, limit=2)
        watch.epoch(loader)
        watch.epoch(loader, limit=0)


def train_val():
    """A validation loop inside each training epoch."""
    train = DataLoader(Numbers(), shuffle=True, **workers())
    val = DataLoader(Numbers(4, first=500), **workers(persistent_workers=True))
    for _ in range(2):
        for number, batch in enumerate(train):
            print("train", watch.digest(batch))
            if number == 1:
                for other in val:
                    print("val", watch.digest(other))


def together():
    """Two iterators of one loader at a time."""
    for loader in (
        DataLoader(Numbers(), batch_size=2, shuffle=True),
        DataLoader(Numbers(), shuffle=True, **workers()),
    ):
        for first, second in zip(loader, loader, strict=False):
            print("both", watch.digest(first), watch.digest(second))


def nested():
    watch.epoch(DataLoader(Outer(4), batch_size=2))
    watch.epoch(DataLoader(Outer(4), **workers(batch_size=2)))


def in_thread():
    """Two loaders in threads beside one in the main thread."""
    lines = [[], []]
    others = (DataLoader(Quiet(8), batch_size=2), DataLoader(Quiet(8), **workers(batch_size=2)))
    threads = [
        threading.Thread(target=watch.epoch, args=(loader,), kwargs={"out": line.append})
        for loader, line in zip(others, lines, strict=True)
    ]
    main = DataLoader(Quiet(9), batch_size=3)
    for thread in threads:
        thread.start()
    watch.epoch(main)
    for thread, line in zip(threads, lines, strict=True):
        thread.join()
        # Which of the threads numbered its loader first is left out.
        print("\n".join(text.partition(" ")[2] for text in line))


def pooled():
    twice(DataLoader(Pooled(), batch_size=4))
    watch.epoch(DataLoader(Pooled(), **workers()))


if __name__ == "__main__":
    random.seed(1)
    numpy.random.seed(2)
    torch.manual_seed(3)
    for name in sys.argv[1:]:
        print("==", name)
        globals()[name]()
        if name != "kept":  # whose queues are open still
            watch.settle()
        print("\n".join(watch.state()))
    watch.write_truth()
