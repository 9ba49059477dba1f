"""Pictures of noise through transforms, one of which has a name that a browser would run."""

import sys
import time

import torch
from plain import Compose
from torch.utils.data import DataLoader, Dataset

HOSTILE = "<script>document.title='run'</script>"


class Plain:
    def __call__(self, values):
        time.sleep(0.002)
        return values * 2


Named = type(HOSTILE, (), {"__call__": lambda self, values: values + 1})


class Noise(Dataset):
    def __init__(self):
        self.transform = Compose([Plain(), Named()])

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return self.transform(torch.full((64,), float(index)))


if __name__ == "__main__":
    for _ in DataLoader(Noise(), batch_size=4, num_workers=int(sys.argv[1])):
        time.sleep(0.001)
