"""Code that is timed by its name (--op) or by a label (lotus.span)."""

import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset

if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])  # where lotus is
    import lotus
else:
    lotus = None


def decode(index):
    return torch.full((2,), float(index))


class Reader:
    def read(self, index):
        return decode(index)

    @staticmethod
    def check(value):
        return value

    @classmethod
    def make(cls):
        return cls()


def step(batch):
    return float(batch.sum())


class Data(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        value = Reader.check(Reader.make().read(index))
        os.path.basename("a/b")
        if lotus:
            with lotus.span("resize"):
                value = self.augment(value)
        return value

    def augment(self, value):
        return value + 1


if lotus:
    Data.augment = lotus.span(Data.augment)
    step = lotus.span("train step")(step)

if __name__ == "__main__":
    print(sum(step(batch) for batch in DataLoader(Data(), batch_size=4, num_workers=1)))
