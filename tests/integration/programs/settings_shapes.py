"""Loaders of many shapes, each with a data set class of its own. Arguments: which shapes.

Prints every batch and the generators' states, which are the same whatever the settings; writes
what may differ (the loaders' attributes, the workers' threads) to $TRUTH as JSON.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

sys.path.append(str(Path(__file__).resolve().parent / "site-packages"))
import settings_remade

SHAPES = {}
TRUTH = {}


class Data(Dataset):
    length = 24

    def __init__(self, length=None):
        self.size = length or self.length

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.tensor([index, index * index])


def shape(function):
    """A shape is called with a data set class that has its name, as `Shuffled` for `shuffled`."""
    name = "".join(part.capitalize() for part in function.__name__.split("_"))
    made = type(name, (Data,), {"__module__": __name__})
    globals()[name] = made  # workers that are not forked look for it
    SHAPES[function.__name__] = lambda: function(made)
    return function


def note(name, loader, **more):
    names = "num_workers prefetch_factor pin_memory persistent_workers batch_size".split()
    truth = {key: getattr(loader, key) for key in names}
    context = loader.multiprocessing_context
    truth["start_method"] = context.get_start_method() if context else None
    truth["in_order"] = getattr(loader, "in_order", True)
    TRUTH[name] = {**truth, **more}


def epochs(loader, count=3):
    for epoch in range(count):
        for batch in loader:
            print(epoch, batch.tolist())


@shape
def shuffled(cls):
    train = DataLoader(cls(), batch_size=5, shuffle=True)
    held = DataLoader(cls(), batch_size=5)  # the same data set class and length
    other = DataLoader(cls(7), shuffle=True, num_workers=1)
    for _ in range(3):
        epochs(train, 1)
        epochs(held, 1)
    epochs(other, 1)
    note("shuffled", train)
    note("held", held)
    note("other", other)


@shape
def not_kept(cls):
    loader = DataLoader(cls(), batch_size=5, shuffle=True, num_workers=2, persistent_workers=True)
    epochs(loader)
    note("not_kept", loader)


@shape
def alone(cls):
    loader = DataLoader(cls(), 5, True, num_workers=2, prefetch_factor=3, persistent_workers=True)
    epochs(loader)
    note("alone", loader)


class EagerSampler:
    """Draws when it is asked for its iterator, not when that is asked for the first batch."""

    def __len__(self):
        return 6

    def __iter__(self):
        return iter(torch.randperm(24).reshape(6, 4).tolist())


@shape
def eager(cls):
    loader = DataLoader(cls(), batch_sampler=EagerSampler())
    epochs(loader)
    note("eager", loader)


@shape
def eager_workers(cls):
    loader = DataLoader(cls(), batch_sampler=EagerSampler(), num_workers=1)
    epochs(loader)
    note("eager_workers", loader)


@shape
def positional(cls):
    epochs(loader := DataLoader(cls(), 4, True, None, None, 1, None, False, True))
    note("positional", loader)


class Loader(DataLoader):
    def __init__(self, data, workers):
        super().__init__(data, 4, num_workers=workers)
        self.seen = self.num_workers


@shape
def subclass(cls):
    loader = Loader(cls(), 1)
    epochs(loader, 1)
    note("subclass", loader, seen=loader.seen, line=subclass.__code__.co_firstlineno + 2)


def collate(samples):
    return torch.stack(samples)


def init(worker):
    torch.set_num_threads(torch.get_num_threads() + 10)


class Threads(Data):
    def __getitem__(self, index):
        return torch.tensor([torch.get_num_threads(), int(os.environ.get("OMP_NUM_THREADS", -1))])


class ThreadsSpawned(Threads):
    pass


class ThreadsForked(Threads):
    pass


class ThreadsMany(Threads):
    pass


def threads(name, cls):
    generator = torch.Generator().manual_seed(3)
    sampler = torch.utils.data.RandomSampler(cls(4), generator=generator)
    options = {"worker_init_fn": init, "generator": generator, "sampler": sampler, "timeout": 300}
    loader = DataLoader(cls(4), 4, num_workers=1, collate_fn=collate, **options)
    same = all(getattr(loader, key) is value for key, value in options.items())
    batches = [batch.tolist() for batch in loader]
    same = same and loader.worker_init_fn is init and loader.collate_fn is collate
    note(name, loader, threads=batches[0][0], same=same)


SHAPES["threads_spawned"] = lambda: threads("threads_spawned", ThreadsSpawned)
SHAPES["threads_forked"] = lambda: threads("threads_forked", ThreadsForked)
SHAPES["threads_many"] = lambda: threads("threads_many", ThreadsMany)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(6))


class Sharded(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return iter(range(first, 6, step))


def iterable(name, cls):
    loader = DataLoader(cls(), batch_size=3)
    print(sorted(sample for batch in loader for sample in batch.tolist()))
    note(name, loader)


SHAPES["stream"] = lambda: iterable("stream", Stream)
SHAPES["sharded"] = lambda: iterable("sharded", Sharded)


@shape
def timed(cls):
    epochs(loader := DataLoader(cls(), 6, num_workers=1, timeout=300), 1)
    note("timed", loader)


@shape
def unpicklable(cls):
    data = cls()
    data.transform = lambda sample: sample
    epochs(loader := DataLoader(data, 6, shuffle=True, num_workers=1))
    note("unpicklable", loader)


@shape
def unordered(cls):
    epochs(loader := DataLoader(cls(), 6, num_workers=1), 1)
    note("unordered", loader)


@shape
def remade(cls):
    loader = DataLoader(cls(), batch_size=5, shuffle=True)
    epochs(again := settings_remade.from_attributes(loader))
    note("remade", again)


@shape
def remade_saved(cls):
    data = cls()
    loaders = settings_remade.saving(
        lambda: [DataLoader(data, 5, shuffle=True), DataLoader(data, 5)]
    )
    train, held = (settings_remade.from_saved(loader) for loader in loaders)
    epochs(train)
    epochs(held)
    note("remade_saved", train)
    note("remade_held", held)


@shape
def grown(cls):
    loader = DataLoader(cls(24), batch_size=5, shuffle=True)
    epochs(loader)
    note("grown", loader)


@shape
def remade_grown(cls):
    loader = DataLoader(cls(24), batch_size=5, shuffle=True)
    epochs(settings_remade.from_attributes(loader), 1)
    epochs(again := settings_remade.from_attributes(loader))
    note("remade_grown", again)


def lengths_of(cls, *lengths):
    """Loaders that one line makes."""
    loaders = [DataLoader(cls(length), batch_size=5, shuffle=True) for length in lengths]
    for length, loader in zip(lengths, loaders, strict=True):
        epochs(loader)
        note(f"{cls.__name__} {length}", loader)


@shape
def lengths_told(cls):
    lengths_of(cls, 6, 24)


@shape
def lengths_untold(cls):
    lengths_of(cls, 6, 24)


@shape
def lengths_left(cls):
    lengths_of(cls, 7, 6)


@shape
def own_context(cls):
    options = {"multiprocessing_context": "spawn", "prefetch_factor": 4, "persistent_workers": True}
    note("own_context", DataLoader(cls(5), num_workers=1, **options))
    note("no_context", DataLoader(cls(6), num_workers=1, **options))


class Nested(Data):
    def __getitem__(self, index):
        return next(iter(DataLoader(Inner(3), batch_size=3)))


class Inner(Data):
    pass


SHAPES["nested"] = lambda: epochs(DataLoader(Nested(2), num_workers=1), 1)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        torch.manual_seed(5)
        print("==", name)
        SHAPES[name]()
        state = torch.get_rng_state().numpy().tobytes()
        print(hashlib.sha256(state).hexdigest())
    Path(os.environ["TRUTH"]).write_text(json.dumps(TRUTH))
