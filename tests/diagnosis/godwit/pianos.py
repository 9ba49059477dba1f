"""Finds cracks in the wood of pianos, in volumes of a scanner; a guard watches the memory.

Planted: the guard, a thread of the main process, adds up the sizes of all objects of Python without
a pause that counts, and so holds the interpreter.
"""

import argparse
import gc
import sys
import threading
import time
from collections import Counter

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split
from torchvision.transforms import v2

VOLUMES, SIDE, DEPTH, BATCH, PLANKS = 480, 40, 16, 8, 12_000


class Guard(threading.Thread):
    """Warns when the objects of the program become too many."""

    def __init__(self, every, limit=2**31):
        super().__init__(daemon=True)
        self.every, self.limit = every, limit
        self.bytes, self.done = 0, threading.Event()

    def look(self):
        sizes = Counter()
        for thing in gc.get_objects():
            sizes[type(thing).__name__] += sys.getsizeof(thing, 0)
        self.bytes = sum(sizes.values())
        if self.bytes > self.limit:
            print("largest:", sizes.most_common(5))

    def run(self):
        while not self.done.wait(self.every):
            self.look()


class Wood(Dataset):
    """Volumes, and a record of the plank that each is of."""

    def __init__(self, planks):
        rng = np.random.default_rng(5107)
        self.volumes = rng.normal(0, 1, (VOLUMES, DEPTH, SIDE, SIDE)).astype(np.float32)
        self.cracked = np.arange(VOLUMES) % 2
        self.volumes[self.cracked == 1, 4:12, 18:20] += 1
        self.planks = planks
        self.transform = v2.Compose(
            [
                v2.RandomCrop(36),
                v2.RandomHorizontalFlip(),
                v2.RandomRotation(5),
                v2.Normalize([0.0] * DEPTH, [1.2] * DEPTH),
            ]
        )

    def __len__(self):
        return VOLUMES

    def __getitem__(self, index):
        plank = self.planks[index * 7 % len(self.planks)]
        volume = torch.from_numpy(self.volumes[index]) * plank["density"]
        return self.transform(volume)[None], int(self.cracked[index])


def make_planks():
    return [
        {"number": number, "density": 0.8 + number % 5 / 10, "origin": ["forest", number % 97]}
        for number in range(PLANKS)
    ]


def make_model():
    return nn.Sequential(
        nn.Conv3d(1, 8, 4, stride=3), nn.ReLU(), nn.Conv3d(8, 16, 3), nn.ReLU(),
        nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 2),
    )  # fmt: skip


def train_epoch(model, optimizer, loader):
    total = 0.0
    for volumes, cracked in loader:
        loss = nn.functional.cross_entropy(model(volumes), cracked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def validate(model, loader):
    right = sum((model(volumes).argmax(1) == cracked).sum() for volumes, cracked in loader)
    return right.item() / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(5107)
    torch.set_num_threads(1)
    training, validation = random_split(Wood(make_planks()), [0.9, 0.1])
    loader = DataLoader(training, BATCH, shuffle=True, num_workers=4)
    held_out = DataLoader(validation, BATCH, num_workers=4)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    guard = Guard(every=60 if args.without else 0.005)
    guard.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss = train_epoch(model, optimizer, loader)
        right = validate(model, held_out)
        print(f"epoch {epoch}: loss {loss:.3f}, right {right:.2f}, {guard.bytes >> 20} MiB")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    guard.done.set()
    guard.join()


if __name__ == "__main__":
    main()
