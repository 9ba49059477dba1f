"""Two operations of which each is one function in C, in two workers; it never ends."""

import binascii
import random
import time
import zlib

import torch
from torch.utils.data import DataLoader, Dataset

BYTES = bytes(20_000)


def compute(function, seconds):
    end = time.thread_time() + seconds * random.uniform(0.6, 1.4)
    while time.thread_time() < end:
        for _ in range(10):
            function(BYTES)


class Checksum:
    def __call__(self, value):
        compute(zlib.adler32, 0.03)
        return value


class Remainder:
    def __call__(self, value):
        compute(lambda data: binascii.crc_hqx(data, 0), 0.03)
        return value


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Data(Dataset):
    def __init__(self):
        self.transform = Compose([Checksum(), Remainder()])

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return self.transform(torch.zeros(4))


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=4, num_workers=2):
        time.sleep(0.001)
