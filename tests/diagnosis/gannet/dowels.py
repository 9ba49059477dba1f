"""Learns from scans of dowels that a store hands out to those who have a pass.

Planted: a pass is good for forty scans, and a new one takes most of a second; whichever sample
comes next waits for it.
"""

import argparse
import hashlib
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, SORTS = 28, 4


class Store:
    """Hands out scans, a few at a time to each client, and new passes."""

    def __init__(self, good_for):
        self.good_for, self.left, self.passed = good_for, 0, None
        self.scans = np.random.default_rng(433).random((80, SIDE, SIDE), dtype=np.float32)
        self.door = None

    def new_pass(self):
        time.sleep(0.7)  # who is it, and is the account paid?
        self.passed = hashlib.sha256(str(time.time()).encode()).hexdigest()
        self.left = self.good_for

    def get(self, number):
        if self.door is None:
            self.door = threading.Semaphore(4)
        with self.door:
            if self.left == 0:
                self.new_pass()
            self.left -= 1
            time.sleep(0.001)
            return self.scans[number % len(self.scans)]


class Dowels(Dataset):
    def __init__(self, store, count):
        self.store, self.count = store, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        scan = self.store.get(index)
        turned = np.rot90(scan, index % 4).copy()
        return torch.from_numpy(turned)[None], index % SORTS


def mix(scans, sorts, share):
    """Blend each scan with another one of its batch."""
    other = torch.randperm(len(scans))
    return share * scans + (1 - share) * scans[other], sorts, sorts[other]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(433)
    store = Store(good_for=1_000_000 if args.without else 40)
    loader = DataLoader(
        Dowels(store, 640), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(1, 24, 5), nn.ReLU(), nn.Conv2d(24, 24, 5), nn.ReLU(), nn.Flatten(),
        nn.Linear(24 * 20 * 20, SORTS),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for scans, sorts in loader:
            mixed, first, second = mix(scans, sorts, 0.7)
            scores = model(mixed)
            loss = 0.7 * nn.functional.cross_entropy(scores, first)
            loss = loss + 0.3 * nn.functional.cross_entropy(scores, second)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
