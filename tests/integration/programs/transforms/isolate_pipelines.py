"""Trains on the pipeline that the command line names, for tests of `lotus.mapping.isolated_runner`.

What takes time is done by libraries whose functions can be told apart: liblzma reads a sample,
libbz2 and libz are in operations. At its end, and on any way out of it that runs code of its own,
the program writes to $TRUTH.
"""

import atexit
import bz2
import lzma
import os
import sys
import threading
import zlib

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

TEXT = bytes(range(256)) * 40


def write(text):
    with open(os.environ["TRUTH"], "a") as file:
        file.write(text + "\n")


def read(index):
    return bytearray(lzma.compress(TEXT + bytes([index % 256]), preset=0))


class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Squeeze:
    """Changes its input, and takes no input twice."""

    def __call__(self, value):
        if value[:4] == b"DONE":
            raise AssertionError("an input that was changed already")
        bz2.compress(TEXT)
        value[:4] = b"DONE"
        return value


class Pack:
    def __call__(self, value):
        return zlib.compress(TEXT, 1)[:8] + bytes(value[4:8])


def to_tensor(value):
    return torch.frombuffer(bytearray(value), dtype=torch.uint8).float()


class Items(Dataset):
    """Its operations lie within; it calls one more by itself."""

    def __init__(self, *transforms, size=64):
        self.size = size
        self.transform = Compose(*transforms)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.transform(read(index))


class Plain(Dataset):
    """No operations at all: what there is is its own."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return to_tensor(read(index)[:8])


class Loading(Items):
    """Reads by a callable of its own, as ImageFolder does."""

    def __init__(self, *transforms):
        super().__init__(*transforms)
        self.loader = read

    def __getitem__(self, index):
        return self.transform(self.loader(index))


class Batches(Items):
    """Fetches a whole batch in one call."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Stream(IterableDataset):
    def __init__(self, *transforms):
        self.transform = Compose(*transforms)

    def __iter__(self):
        for index in range(40):
            yield self.transform(read(index))


def whole():
    return Squeeze(), Pack(), to_tensor


def open_picture(path):
    """Reads the first bytes; whoever looks at the pixels decodes them."""
    from PIL import Image

    return Image.open(path)


def decode(picture):
    return picture.convert("L")


def size_of(picture):
    return torch.tensor(picture.size)


class Pictures(Dataset):
    def __init__(self):
        import numpy
        from PIL import Image

        noise = numpy.random.default_rng(0).integers(0, 256, (500, 500, 3), dtype=numpy.uint8)
        Image.fromarray(noise).save("picture.png")
        self.loader, self.transform = open_picture, Compose(decode, size_of)

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return self.transform(self.loader("picture.png"))


def fails(value):
    raise ValueError("never works")


class Sometimes:
    """Fails for the samples it has not seen before: when it runs again, always."""

    calls = 0

    def __call__(self, value):
        self.calls += 1
        if self.calls > 20:
            raise RuntimeError("not again")
        return value


class Dies:
    """As an operation does whose native code crashes, some time after it was tried."""

    calls = 0

    def __call__(self, value):
        self.calls += 1
        if self.calls > 40:
            os._exit(7)
        return value


def lock(value):
    return value, threading.Lock()


def unlock(pair):
    return pair[0]


PIPELINES = {
    "items": lambda: [Items(*whole())],
    "plain": lambda: [Plain()],
    "loading": lambda: [Loading(*whole())],
    "batches": lambda: [Batches(*whole())],
    "stream": lambda: [Stream(*whole())],
    "pictures": lambda: [Pictures()],
    "fails": lambda: [Items(Squeeze(), fails, to_tensor)],
    "sometimes": lambda: [Items(Sometimes(), *whole())],
    "dies": lambda: [Items(Squeeze(), Dies(), to_tensor)],
    "locks": lambda: [Items(lock, unlock, *whole())],
    # The larger one is iterated last.
    "two": lambda: [Plain(), Items(*whole(), size=100)],
    "none": lambda: [],
}


def main(name, workers):
    loaders = [
        DataLoader(dataset, batch_size=8, num_workers=workers) for dataset in PIPELINES[name]()
    ]
    atexit.register(write, "exit handler")
    print("starts", flush=False)
    try:
        for loader in loaders:
            for batch in loader:
                write(f"trained on {len(batch)}")
    finally:
        write("finally")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
