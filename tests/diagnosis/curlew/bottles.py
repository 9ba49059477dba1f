"""Reads the labels of bottles, whose pictures are in a bucket with a limit of requests.

Planted: the workers count their requests under one lock, and hold it until the picture has come.
"""

import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, LATENCY, ALLOWED = 48, 0.008, 10**6


class Bucket:
    """Pictures that come some time after they were asked for."""

    def __init__(self):
        self.base = np.random.default_rng(727).integers(0, 256, (SIDE, SIDE, 3), np.uint8)

    def get(self, name):
        time.sleep(LATENCY)
        return np.roll(self.base, name, 1)


class Budget:
    """The number of requests that all workers together have made."""

    def __init__(self, context):
        self.lock = context.Lock()
        self.used = context.Value("l", 0, lock=False)

    def count(self):
        if self.used.value >= ALLOWED:
            raise RuntimeError("no requests left")
        self.used.value += 1


class Labels(Dataset):
    def __init__(self, count, budget, short):
        self.bucket, self.budget, self.short = Bucket(), budget, short
        self.years = np.random.default_rng(728).integers(0, 10, count)
        self.transform = v2.Compose(
            [v2.RandomCrop(SIDE - 8), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return len(self.years)

    def download(self, name):
        if self.short:
            with self.budget.lock:
                self.budget.count()
            return self.bucket.get(name)
        with self.budget.lock:
            self.budget.count()
            return self.bucket.get(name)

    def __getitem__(self, index):
        picture = torch.from_numpy(self.download(index)).permute(2, 0, 1)
        return self.transform(picture), int(self.years[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(727)
    context = multiprocessing.get_context("fork")
    loader = DataLoader(
        Labels(400, Budget(context), args.without), batch_size=20, shuffle=True, num_workers=4,
        multiprocessing_context=context, persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, years in loader:
            loss = nn.functional.cross_entropy(model(pictures), years)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
