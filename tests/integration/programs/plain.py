"""A small training loop: two operations, 64 samples, batches of 8. Argument: workers."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Scale:
    def __call__(self, value):
        return value * 2.0


class Shift:
    def __call__(self, value):
        return value + 1.0


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Data(Dataset):
    def __init__(self):
        self.transform = Compose([Scale(), Shift()])

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.transform(torch.full((3,), float(index)))


if __name__ == "__main__":
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    print(
        sum(float(batch.sum()) for batch in DataLoader(Data(), batch_size=8, num_workers=workers))
    )
