"""Features of a DataLoader that give batches; each is a function of paired.Seen."""

import copy
import functools
import gc
import itertools
import multiprocessing
import os
import pathlib
import pickle
import random
import threading
import warnings
import weakref

import numpy
import torch
from paired import METHOD, loaders, seeded, workers
from paired_data import (
    Closed,
    Counting,
    Drawn,
    Nested,
    NoGenerator,
    Numbers,
    Pinned,
    Scale,
    Stream,
    Whole,
)
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_convert,
    get_worker_info,
    random_split,
)


def batching(see):
    for size, drop in ((None, False), (1, False), (3, True), (3, False), (20, False), (20, True)):
        loader = DataLoader(Numbers(), batch_size=size, drop_last=drop)
        see(f"{size} {drop}", [len(loader), list(loader)])
    for name, loader in loaders(Numbers(), counts=[2], batch_size=3, drop_last=True):
        see.loop(name, loader)
    for name, loader in loaders(Numbers(4), counts=[2], batch_size=None):
        see.loop(name, loader)


def samplers(see):
    numbers = Numbers()
    for sampler in (
        RandomSampler(numbers, replacement=True, num_samples=6),
        RandomSampler(numbers, generator=seeded()),
        SubsetRandomSampler([2, 4, 6], generator=seeded()),
        WeightedRandomSampler([0.1, 0.2, 0.7], 5, generator=seeded()),
        SequentialSampler(numbers),
        [5, -1, 3],
        BatchSampler([1, 2, 3], 2, False),
    ):
        see.loop(type(sampler).__name__, DataLoader(numbers, sampler=sampler))
    for sampler in (iter([1, 2, 3]), (number for number in (4, 5))):
        loader = DataLoader(numbers, sampler=sampler)
        see("used up", [list(loader), list(loader)])
    see.loop("keys", DataLoader({"a": 1, "b": 2}, sampler=["b", "a"], **workers(1)))


def batch_samplers(see):
    lists = [[0, 1], [2], [9, 8, 7]]
    for name, loader in loaders(Numbers(), batch_sampler=lists):
        see.loop(name, loader)
    tuples = DataLoader(Numbers(), batch_sampler=[(3, 1), torch.tensor([2, 2])])
    see.loop("no lists", tuples)
    drop = BatchSampler(RandomSampler(range(7), generator=seeded()), 3, True)
    see.loop("torch's own", DataLoader(Numbers(), batch_sampler=drop))


def distributed_sampler(see):
    sampler = DistributedSampler(Numbers(), num_replicas=3, rank=1, seed=4)
    loader = DataLoader(Numbers(), batch_size=2, sampler=sampler, **workers(1))
    for epoch in range(2):
        sampler.set_epoch(epoch)
        see.loop(str(epoch), loader)


def generators(see):
    """Whose numbers are drawn from, and how many."""
    for name, loader in loaders(Drawn(6), batch_size=2, shuffle=True, generator=seeded()):
        see.loop(name, loader)
        see.loop(name, loader)
        see(name, loader.generator.get_state())
    for name, loader in loaders(Drawn(6), batch_size=2, shuffle=True):
        see.loop(name, loader)
        see(name, torch.rand(1))


class Callable:
    def __call__(self, samples):
        return Numbers, len(samples), type(samples).__name__

    def method(self, samples):
        return self(samples)


def collating(see):
    for name, loader in loaders(Nested(), batch_size=3):
        see.loop(name, loader)
    see.loop("converted", DataLoader(Nested(), batch_size=None))
    mine = Callable()
    functions = [tuple, mine, mine.method, functools.partial(max, key=float), lambda samples: None]
    for function in functions:
        loader = DataLoader(Numbers(), batch_size=4, collate_fn=function)
        see.loop("function", loader)
    see.loop("worker", DataLoader(Numbers(), batch_size=4, collate_fn=mine.method, **workers(1)))
    see("same", [loader.collate_fn is function, default_convert is not None])


def pinning(see):
    """Without an accelerator: a warning, and batches that are not pinned."""
    for name, loader in loaders(Numbers(4), batch_size=2, pin_memory=True, collate_fn=Pinned):
        see(name, [batch.was_pinned for batch in loader])
    for name, loader in loaders(Nested(4), batch_size=2, pin_memory=True):
        see.loop(name, loader)
    # Without workers: torch 2.2 lets them live on where their pinning cannot begin.
    loader = DataLoader(Numbers(4), pin_memory=True, pin_memory_device="cpu")
    see.loop("device", loader)
    see("given", loader.pin_memory_device)


def sharing(see):
    """Tensors of workers by the names of files instead of descriptors."""
    strategy = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        for name, loader in loaders(Nested(4), batch_size=2):
            see.loop(name, loader)
    finally:
        torch.multiprocessing.set_sharing_strategy(strategy)


def prefetching(see):
    for factor in (1, 5):
        loader = DataLoader(Counting(), batch_size=2, prefetch_factor=factor, **workers(2))
        see.loop(str(factor), loader)
        see("given", loader.prefetch_factor)


def persistent(see):
    data = Counting(6)
    loader = DataLoader(data, batch_size=2, persistent_workers=True, **workers(2))
    iterator = iter(loader)
    see.loop("first", loader)
    data.made = 100  # which the workers do not hear of
    see.loop("left", loader, limit=1)
    see.loop("again", loader)
    see("the same", [loader._iterator is iterator, len(loader), data.made])
    running = iterator._workers
    iterator._shutdown_workers()
    see("exit codes", [worker.exitcode for worker in running])


def set_up(number):
    info = get_worker_info()
    info.dataset.base = 1000 * (number + 1)
    numpy.random.seed(info.seed % 2**32)


class Based(Numbers):
    base = 0

    def __getitem__(self, index):
        info = get_worker_info()
        seeds = [info.seed, torch.initial_seed(), random.random(), numpy.random.rand()]
        facts = [info.id, info.num_workers, info.dataset is self]
        return [self.base + index, *facts, *seeds]


def starting(see):
    """worker_init_fn, and what a worker is told of itself; the same however workers start."""
    data = Based(6)
    options = {"batch_size": 2, "worker_init_fn": set_up, "collate_fn": list}
    see.loop("workers", DataLoader(data, generator=seeded(), **options, **workers(2)))
    see("here", [data.base, get_worker_info()])


class World(Dataset):
    """Looks around in a worker."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        process = multiprocessing.current_process()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("here", stacklevel=1)
        return [
            process.name.rpartition("-")[0], process.daemon, process.exitcode,
            sorted(thread.name for thread in threading.enumerate()), torch.get_num_threads(),
            gc.isenabled(), os.path.basename(os.getcwd()) != "", os.getpid() == process.pid,
            os.getppid() == multiprocessing.parent_process().pid,
            multiprocessing.get_start_method(),
            [(shown.category.__name__, str(shown.message), shown.lineno) for shown in caught],
            repr(type(self).__mro__), vars(self),
        ]  # fmt: skip


def a_workers_world(see):
    see.loop("world", DataLoader(World(), collate_fn=list, **workers(1)))


def contexts(see):
    for context in (METHOD, multiprocessing.get_context(METHOD)):
        loader = DataLoader(Numbers(2), num_workers=1, multiprocessing_context=context)
        see.loop("context", loader)
        see("kept", type(loader.multiprocessing_context).__name__)
    loader.multiprocessing_context = None
    see("none", loader.multiprocessing_context)
    timed = DataLoader(Numbers(4), batch_size=2, timeout=900, **workers(1))
    see.loop("a timeout that is not reached", timed)


def streams(see):
    for name, loader in loaders(Stream(), batch_size=2):
        see.loop(name, loader)
    for name, loader in loaders(Stream(), counts=[2], batch_size=2, drop_last=True):
        see.loop(name, loader)
    for name, loader in loaders(Stream(), batch_size=None):
        see.loop(name, loader)
    for own in (False, True):
        loader = DataLoader(NoGenerator(own), batch_size=2)
        see("own" if own else "list", [list(loader), list(loader)])
    see.loop("chain", DataLoader(ChainDataset([Stream(2), Stream(3)]), batch_size=4, **workers(1)))
    see.of("no length", len, DataLoader(Stream()))


def lengths(see):
    """A stream that is longer or shorter than it says; some of it warns."""
    for claims in (3, 7, 9):
        for name, loader in loaders(Stream(claims=claims), batch_size=2):
            see(name, [claims, len(loader)])
            see.loop(name, loader)
            see.loop(name, loader)
    see.loop("not asked", DataLoader(Stream(claims=3), batch_size=2))


def data_sets(see):
    numbers, values = Numbers(4), torch.arange(6.0)
    parts = random_split(Numbers(9), [4, 5], generator=seeded())
    for data in (
        TensorDataset(values, values * 2),
        ConcatDataset([numbers, Subset(Numbers(), [7, 5])]),
        StackDataset(a=numbers, b=Numbers(4)),
        parts[0],
        list(range(5)),
        range(5),
        "hello",
        values.numpy(),
        values,
        Whole(),
    ):
        see.loop(type(data).__name__, DataLoader(data, batch_size=3))
    see("from the end", ConcatDataset([numbers, parts[1]])[-2])
    see.loop("worker", DataLoader(parts[1], batch_size=2, **workers(1)))
    see.loop("whole", DataLoader(Whole(), batch_size=4, **workers(1)))


def pipes(see):
    """Data pipes, which torch.utils.data shuffles and shares out by itself."""
    from torch.utils.data.datapipes.iter import IterableWrapper
    from torch.utils.data.datapipes.map import SequenceWrapper

    pipe = IterableWrapper(range(8)).map(Scale()).shuffle().sharding_filter()
    for shuffle in (True, False):
        for name, loader in loaders(pipe, batch_size=2, shuffle=shuffle):
            see.loop(name, loader)
            see.loop(name, loader)
    grouped = IterableWrapper(range(5)).batch(2).collate()
    see.loop("batched", DataLoader(grouped, batch_size=None))
    mapped = SequenceWrapper(list(range(5))).map(Scale())
    see.loop("map", DataLoader(mapped, batch_size=2, **workers(1)))


def in_order(see):
    loader = DataLoader(Counting(), batch_size=2, in_order=False, **workers(1))
    see.loop("one worker", loader)
    see("given", loader.in_order)
    see.loop("no worker", DataLoader(Counting(), batch_size=2, in_order=False))


def leaving(see):
    """Breaks, two iterators at a time, asking on after the end."""
    for name, loader in loaders(Counting(), batch_size=2):
        see.loop(name, loader, limit=2)
        first, second = iter(loader), iter(loader)
        see(name, [next(first), next(second), next(second), next(first)])
        see(name, [iter(first) is first, len(first), first is second])
        see(name, [list(first), list(first), list(second)])
        see.of("after the end", next, first)
        see.of("again", next, first)
        see.of("pickled", pickle.dumps, first)
        for iterator in (first, second):
            for worker in getattr(iterator, "_workers", ()):
                see("exit code", worker.exitcode)


def closing(see):
    """Streams that are left, or read to their end, are closed where they were read."""
    path = pathlib.Path(os.environ["TRUTH"] + ".closed")
    for batch_size in (2, None):
        for name, loader in loaders(Closed(path), batch_size=batch_size):
            for limit in (3, 40):  # by the third batch both workers have begun
                path.write_text("")
                for _ in itertools.islice(loader, limit):
                    pass
                see(
                    f"{name}, batches of {batch_size}, {limit} taken",
                    sorted(path.read_text().splitlines()),
                )


def as_an_object(see):
    """What a program may do with a loader that was iterated."""
    data = Numbers(4)
    loader = DataLoader(data, batch_size=2, shuffle=True, generator=seeded())
    see.loop("before", loader)
    see("attributes", sorted(vars(loader)))
    see("is", [loader.dataset is data, type(data.transform).__name__, len(loader)])
    see("kinds", [isinstance(data.transform, Scale), sorted(vars(data)), repr(type(loader))])
    for again in (copy.copy(loader), pickle.loads(pickle.dumps(DataLoader(data, batch_size=2)))):
        see.loop("copy", again)
    for name in ("batch_size", "sampler", "dataset", "drop_last", "persistent_workers"):
        see.of(name, setattr, loader, name, None)
    loader.num_workers, loader.note = 1, "mine"
    see.loop("with a worker", loader)


class Mine(DataLoader):
    """A subclass that overrides what it should not."""

    iterated = 0

    def __len__(self):
        return 77

    def _get_iterator(self):
        self.iterated += 1
        return super()._get_iterator()

    @property
    def note(self):
        return f"iterated {self.iterated} times"


def subclasses(see):
    for count in (0, 1):
        loader = Mine(Numbers(4), batch_size=2, **workers(count))
        see.loop(str(count), loader)
        see("note", [loader.note, len(loader), isinstance(loader, DataLoader)])


def freeing(see):
    """What a program lets go is gone at once, without the garbage collector."""
    gc.disable()
    for count in (0, 1):
        data = Numbers(4)
        loader = DataLoader(data, batch_size=2, **workers(count))
        iterator = iter(loader)
        list(iterator)
        gone = [weakref.ref(thing) for thing in (data, data.transform, loader)]
        if count == 0:  # torch's own iterator with workers waits for the collector
            gone.append(weakref.ref(iterator))
        del data, loader, iterator
        see("gone", [reference() is None for reference in gone])
    gc.enable()
