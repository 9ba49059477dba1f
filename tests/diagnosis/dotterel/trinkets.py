"""Estimates the sugar in trinkets; all workers count what they have read in one small file.

Nothing is planted: the accelerator's step sets the pace. The lock on the file is held for as long
as a number takes to be read and written.
"""

import argparse
import fcntl
import os
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRINKETS, VALUES = 960, 400


class Counter:
    """A number that several processes count up."""

    def __init__(self, path):
        self.path, self.file = path, None
        Path(path).write_bytes(struct.pack("<q", 0))

    def add(self):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDWR)
        fcntl.lockf(self.file, fcntl.LOCK_EX)
        (count,) = struct.unpack("<q", os.pread(self.file, 8, 0))
        os.pwrite(self.file, struct.pack("<q", count + 1), 0)
        fcntl.lockf(self.file, fcntl.LOCK_UN)

    def value(self):
        return struct.unpack("<q", Path(self.path).read_bytes())[0]


class Trinkets(Dataset):
    def __init__(self, counter):
        rng = np.random.default_rng(4177)
        self.counter = counter
        self.values = rng.normal(0, 1, (TRINKETS, VALUES)).astype(np.float32)

    def __len__(self):
        return TRINKETS

    def __getitem__(self, index):
        self.counter.add()
        values = self.values[index]
        smooth = np.convolve(values, np.ones(5, np.float32) / 5, "same")
        return torch.from_numpy(smooth), float(values[:9].sum())


class Accelerator:
    """Stands for a card: takes its time for a step and leaves the cores alone."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.model = nn.Sequential(nn.Linear(VALUES, 32), nn.ReLU(), nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, values, sugar):
        loss = nn.functional.mse_loss(self.model(values).squeeze(1), sugar.float())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(self.seconds)
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(4177)
    accelerator = Accelerator(0.07)
    with tempfile.TemporaryDirectory() as folder:
        counter = Counter(os.path.join(folder, "count"))
        loader = DataLoader(
            Trinkets(counter), batch_size=24, shuffle=True, num_workers=4, persistent_workers=True
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            losses = [accelerator.step(values, sugar) for values, sugar in loader]
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}, {counter.value()} read")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
