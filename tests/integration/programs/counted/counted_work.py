"""Operations whose work is done by a library each, and one in Python; argv: workers, samples."""

import bz2
import sys
import zlib

import torch
from torch.utils.data import DataLoader, Dataset

TEXT = b"".join(number.to_bytes(4, "big") for number in range(10_000))


class Squeeze:
    def __call__(self, value):
        return len(bz2.compress(TEXT)) + value


class Pack:
    def __call__(self, value):
        return len(zlib.compress(TEXT, 9)) + value


class Spell:
    def __call__(self, value):
        letters = 0
        for number in range(40_000):
            letters += number & 7
        return letters + value


class Compose:
    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Data(Dataset):
    def __init__(self, size):
        self.size = size
        self.transform = Compose(Squeeze(), Pack(), Spell())

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.tensor(float(self.transform(index)))


if __name__ == "__main__":
    workers, size = map(int, sys.argv[1:])
    for batch in DataLoader(Data(size), batch_size=8, num_workers=workers):
        print(batch.sum().item())
