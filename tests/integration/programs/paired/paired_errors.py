"""Features of a DataLoader that fail; each is a function of paired.Seen."""

import multiprocessing
import os
import signal
import sys

import torch
from paired import METHOD, loaders, raised, workers
from paired_data import Fails, Numbers, Picky, Stream, Whole
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Unpicklable(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.function = lambda: None


ERRORS = {
    "value": lambda: ValueError("bad picture"),
    "key": lambda: KeyError("no\nsuch key"),
    "picky": lambda: Picky(1, 2),
    "decode": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"),
    "os": lambda: FileNotFoundError(2, "No such file", "shard-4"),
    "unpicklable": lambda: Unpicklable("with a function"),
    "stop": lambda: StopIteration("early"),
    "no message": lambda: AssertionError(),
    "timeout": lambda: TimeoutError("from the disk"),
}


def in_the_data_set(see):
    """Raised in the main process as it is, in a worker made again as what it was."""
    for name, make in ERRORS.items():
        see.loop(f"{name} here", DataLoader(Fails(make), batch_size=2))
    for name in ("key", "picky", "decode", "os", "unpicklable", "stop"):
        loader = DataLoader(Fails(ERRORS[name]), batch_size=2, **workers(1))
        see.loop(f"{name} in a worker", loader)


def going_on(see):
    """A program that catches what comes out of a batch and takes the next one."""
    for name, loader in loaders(Fails(ERRORS["key"]), batch_size=2):
        iterator = iter(loader)
        for _ in range(6):
            see.of(name, next, iterator)
    # With two workers torch's order depends on which of them is told of as ended first.
    for name, loader in loaders(Stream(fails=3), counts=(0, 1), batch_size=2):
        iterator = iter(loader)
        for _ in range(6):
            see.of(name, next, iterator)


def wrong_collate(samples):
    raise TypeError("cannot collate")


def wrong_init(number):
    raise PermissionError(f"worker {number} may not start")


def wrong_sampler():
    yield from (0, 1, 2)
    raise LookupError("no more of these")


class Uneven(Numbers):
    def __getitem__(self, index):
        return torch.zeros(1 + index // 2)


class NoLength(Dataset):
    def __getitem__(self, index):
        return index


class NoStart(IterableDataset):
    def __iter__(self):
        raise ConnectionError("no such host")


def elsewhere(see):
    """In all other code of the user that a loader calls."""
    for name, loader in loaders(Numbers(), counts=(0, 1), collate_fn=wrong_collate):
        see.loop(f"collate {name}", loader)
    for name, loader in loaders(Uneven(), counts=(0, 1), batch_size=4):
        see.loop(f"default collate {name}", loader)
    for count in (0, 1):
        loader = DataLoader(Numbers(), sampler=wrong_sampler(), batch_size=2, **workers(count))
        see.loop(f"sampler {count}", loader)
    for name, loader in loaders(NoStart(), counts=(0, 1)):
        see.loop(f"no iterator {name}", loader)
    see.loop("init", DataLoader(Numbers(), worker_init_fn=wrong_init, **workers(2)))
    for name, loader in loaders(Whole(short=True), counts=(0, 1), batch_size=3):
        see.loop(f"too few {name}", loader)
    see.of("no length", len, DataLoader(NoLength(), sampler=iter([1])))
    see.loop("no length", DataLoader(NoLength(), sampler=[1, 2]))
    see.loop("nothing to fetch from", DataLoader(Dataset(), sampler=[1]))
    see.loop("no such index", DataLoader([1, 2], sampler=[0, 7]))
    see.loop("no indices", DataLoader(Numbers(), batch_sampler=[0, 1]))


class Leaves(Numbers):
    """Ends its process at index 4, when it is told to."""

    def __init__(self, leave):
        super().__init__(8)
        self.leave = leave
        self.leaving = multiprocessing.get_context(METHOD).Event()

    def __getitem__(self, index):
        if index == 4:
            self.leaving.wait()
            self.leave()
        return index


def by_signal(number):
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)


EXITS = {
    "_exit": lambda: os._exit(3),
    "exit": lambda: sys.exit(4),
    "kill": lambda: by_signal(signal.SIGKILL),
    "term": lambda: by_signal(signal.SIGTERM),
    "bus": lambda: by_signal(signal.SIGBUS),
    "abort": lambda: by_signal(signal.SIGABRT),
}


def ending(see):
    """Workers that end: what the main process is told of it, and their exit codes."""
    for name, leave in EXITS.items():
        data = Leaves(leave)
        # No tensors: taking one asks the worker, and it may be gone by then.
        iterator = iter(DataLoader(data, batch_size=2, collate_fn=list, **workers(1)))
        (worker,) = iterator._workers
        see(name, [next(iterator), next(iterator)])
        try:
            data.leaving.set()
            next(iterator)
        except RuntimeError as error:
            # Torch tells it in its signal handler or when it looks: the words differ, by chance.
            known = ("exited unexpectedly", "killed by signal")
            see(name, [sum(word in str(error) for word in known), type(error).__name__])
            raised(error)
        del iterator
        worker.join()
        see(name, worker.exitcode)


def refused(see):
    """Arguments that the constructor does not take."""
    numbers = Numbers()
    for options in (
        {"num_workers": -1},
        {"timeout": -1},
        {"batch_size": 0},
        {"batch_size": 2.5},
        {"batch_size": None, "drop_last": True},
        {"prefetch_factor": 2},
        {"prefetch_factor": -1, "num_workers": 1},
        {"persistent_workers": True},
        {"shuffle": True, "sampler": [1]},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"multiprocessing_context": METHOD},
        {"multiprocessing_context": "nothing", "num_workers": 1},
        {"multiprocessing_context": 7, "num_workers": 1},
        {"nothing": 1},
        {"num_workers": 500},  # warns
    ):
        made = see.of(str(options), lambda options=options: len(DataLoader(numbers, **options)))
        see("length", made)
    see.of("stream", DataLoader, Stream(), shuffle=True)
    see.of("stream", DataLoader, Stream(), sampler=[1])
    see.of("empty", DataLoader, [], shuffle=True)


class Outer(Numbers):
    """Makes a loader with workers inside a worker, which may have no children."""

    def __getitem__(self, index):
        return sum(batch.sum() for batch in DataLoader(Numbers(2), num_workers=1))


def nested(see):
    see.loop("in a worker", DataLoader(Outer(2), **workers(1)))
    see.loop("in the main process", DataLoader(Outer(1), num_workers=0))
