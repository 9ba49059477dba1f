"""Planted: the second of three operations computes for 4 ms; everything else is quick."""

import time

from torch.utils.data import DataLoader, Dataset


class Quick:
    def __call__(self, value):
        return value + 1


class Heavy:
    def __call__(self, value):
        until = time.thread_time() + 0.004
        while time.thread_time() < until:
            pass
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
        self.transform = Compose([Quick(), Heavy(), Quick()])

    def __len__(self):
        return 320

    def __getitem__(self, index):
        return self.transform(index)


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=8, num_workers=2):
        time.sleep(0.001)
