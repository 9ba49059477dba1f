"""Objects that resist being looked at. Prints what came out and which of their methods were called:
nobody but the program and torch has any business with them.
"""

import functools
import sys
from abc import ABCMeta
from typing import ClassVar

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

CALLED = []


def called(what):
    CALLED.append(what)


class Resisting:
    """Every look at it counts, and most fail."""

    def __getattr__(self, name):
        called(f"{type(self).__name__}.{name}")
        raise RuntimeError(f"no {name}")

    def __eq__(self, other):
        called("eq")
        raise ValueError("not to be compared")

    __hash__ = None

    def __bool__(self):
        called("bool")
        raise ValueError("neither true nor false")

    def __len__(self):
        called("len")
        raise MemoryError

    def __iter__(self):
        called("iter")
        raise OSError

    def __repr__(self):
        called("repr")
        raise KeyError

    __str__ = __repr__

    @property
    def __class__(self):
        called("class")
        raise AttributeError("no class")


class ResistingTransform(Resisting):
    def __call__(self, value):
        return value + 1


class Looping:
    """Asks itself for what it lacks, for ever."""

    def __getattr__(self, name):
        called(f"Looping.{name}")
        return getattr(self, name + "_")

    def __call__(self, value):
        return value + 2


class Registry(type):
    known: ClassVar = []

    def __new__(mcs, name, bases, members):
        made = super().__new__(mcs, name, bases, members)
        mcs.known.append(name)
        return made

    def __call__(cls, *args):
        called("made")
        return super().__call__(*args)

    def __getattribute__(cls, name):
        if not name.startswith("__"):
            called(f"Registry.{name}")
        return super().__getattribute__(name)


class Registered(metaclass=Registry):
    def __init_subclass__(cls):
        called("subclass")

    def __call__(self, value):
        return value + 3


class Slotted:
    __slots__ = ("number",)

    def __init__(self):
        self.number = 4

    def __call__(self, value):
        return value + self.number


class Empty(list):
    """False, for it has no length."""

    def __call__(self, value):
        return value + 5


class Keywords:
    def __call__(self, value, /, *, more=6):
        return value + more


class TwoWays:
    """Has a `forward` of one parameter, but is called with more."""

    def forward(self, value):
        return value

    def __call__(self, value, more=0, *, once=0):
        return self.forward(value) + more + once


class Static:
    __call__ = staticmethod(lambda value, more: value + more)


class Abstract(metaclass=ABCMeta):  # noqa: B024
    def __call__(self, value):
        return value + 7


class Pipeline:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            if type(transform).__name__ == "TwoWays":
                value = transform(value, 8, once=9)
            elif type(transform).__name__ == "Static":
                value = transform(value, 10)
            else:
                value = transform(value)
        return value


def everything():
    named = type("line\nfeed\x1b[31m\r", (Abstract,), {})
    long = type("x" * 10_000, (Abstract,), {"__module__": None})
    surrogate = functools.partial(int.__add__, 11)
    function = eval("lambda value: value + 12")
    function.__name__ = "\ud800\x00[bold]"
    return [
        ResistingTransform(),
        Looping(),
        Registered(),
        Slotted(),
        Empty(),
        Keywords(),
        TwoWays(),
        Static(),
        named(),
        named(),
        long(),
        surrogate,
        function,
        functools.lru_cache(function),
        torch.nn.Identity(),
    ]


class Data(Dataset):
    def __init__(self):
        self.transform = Pipeline(everything())
        self.target_transform = Pipeline(tuple(everything()))
        self.resisting = Resisting()
        self.looping = Looping()
        self.__dict__["\x00 hostile\n"] = Looping()
        self.__dict__["\udfff"] = Pipeline([Slotted(), Slotted()])
        self.__dict__[7] = Pipeline([Slotted()])
        self.itself = self
        self.datasets = [self, Resisting(), Looping()]
        self.samples = Resisting()
        self.paths = [Resisting()] * 8

    def __getattr__(self, name):
        if name not in ("__getitems__", "__len__"):  # torch asks for these
            called(f"Data.{name}")
        raise AttributeError(name)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        index = int(index)
        return self.transform(index), self.target_transform(index)


class Index:
    """An index that is an integer only when it likes."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        called("index")
        raise LookupError("not now")

    def __int__(self):
        return self.number


class Indices(list):
    def __getitem__(self, key):
        called("indices")
        raise ValueError

    def __len__(self):
        called("indices")
        raise ValueError


class Strange(Sampler):
    """Batches of strange indices in strange lists."""

    def __init__(self):
        pass

    def __getattr__(self, name):
        called(f"Strange.{name}")
        raise RuntimeError(name)

    def __iter__(self):
        yield Indices([Index(0), Index(1)])
        yield (index for index in (2, 3))
        yield torch.tensor([4, 5])
        yield ["6", 7]

    def __len__(self):
        return 4


class Batch(Resisting, dict):
    """What collate makes: a dict that is none."""

    values = items = keys = Resisting.__iter__


Batch.__module__ = None


def collate(samples):
    batch = Batch()
    dict.update(batch, samples=list(samples), more=[Resisting(), Batch()], whole=torch.ones(3))
    return batch


collate.__name__ = "\x1b[2J[/]"


class Loader(DataLoader):
    """Has opinions on who may ask it what."""

    @property
    def drop_last(self):
        if sys._getframe(1).f_globals["__name__"].startswith("torch."):
            return False
        raise RuntimeError("ask somebody else")

    @drop_last.setter
    def drop_last(self, value):
        pass

    def __len__(self):
        called("len of the loader")
        return super().__len__()


def main():
    for workers in (0, 2):
        CALLED.clear()
        data = Data()
        # What goes through a queue must be picklable.
        strange = {} if workers else {"batch_sampler": Strange(), "collate_fn": collate}
        loader = Loader(data, num_workers=workers, **strange)
        for _ in range(2):
            for batch in loader:
                print(dict.__getitem__(batch, "samples") if strange else batch)
        print(workers, sorted(set(CALLED)), Registry.known)
        print([type(transform).__name__ for transform in data.transform.transforms])


if __name__ == "__main__":
    main()
