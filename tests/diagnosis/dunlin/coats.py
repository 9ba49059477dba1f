"""Streams pictures of coats from shards, and means to give each worker shards of its own.

Planted: the stream asks which worker it is in when it is made, which is in the main process, so
each of two workers reads all shards.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIDE, SHARDS, EACH = 32, 10, 80


def worker():
    info = get_worker_info()
    return (info.id, info.num_workers) if info is not None else (0, 1)


class Coats(IterableDataset):
    """Samples of the shards that this worker has, through a small shuffling buffer."""

    def __init__(self, late, buffer=64):
        self.late, self.buffer = late, buffer
        self.number, self.workers = worker()

    def read(self, shard):
        draw = torch.Generator().manual_seed(37 + shard)
        for _ in range(EACH):
            yield torch.rand(3, SIDE, SIDE, generator=draw), shard % 4

    def samples(self):
        if self.late:
            self.number, self.workers = worker()
        shards = list(range(SHARDS))[self.number :: self.workers]
        random.shuffle(shards)
        for shard in shards:
            yield from self.read(shard)

    def __iter__(self):
        held = []
        for sample in self.samples():
            held.append(sample)
            if len(held) == self.buffer:
                yield self.jitter(held.pop(random.randrange(self.buffer)))
        random.shuffle(held)
        yield from map(self.jitter, held)

    def jitter(self, sample):
        picture, label = sample
        return (picture * (0.8 + 0.4 * random.random())).clamp(0, 1), label


def build_model(width=32):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(37)
    coats = Coats(late=args.without)
    loader = DataLoader(coats, batch_size=16, num_workers=2, persistent_workers=True)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        seen = 0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(y)
        print(f"epoch {epoch}: {seen} coats, loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
