"""Trains on a stream of signal flags, which passes through a shuffle buffer.

Planted: both workers read the whole stream, each shuffled in its own way, so all comes twice.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIDE, FLAGS = 20, 26


class Stream(IterableDataset):
    """Flags in the order in which they were seen, with the same noise each time."""

    def __init__(self, count, shared_out):
        self.count, self.shared_out = count, shared_out

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker and self.shared_out else (0, 1)
        for number in range(first, self.count, step):
            noise = torch.Generator().manual_seed(number)
            flag = torch.rand(3, SIDE, SIDE, generator=noise)
            flag[:, number % SIDE] += 0.5
            yield flag.sub(flag.mean()).div(flag.std()), number % FLAGS


class Shuffled(IterableDataset):
    def __init__(self, stream, size=60):
        self.stream, self.size = stream, size

    def __iter__(self):
        worker = get_worker_info()
        draw = random.Random(worker.seed if worker else 281)
        held = []
        for sample in self.stream:
            held.append(sample)
            if len(held) > self.size:
                yield held.pop(draw.randrange(len(held)))
        draw.shuffle(held)
        yield from held


class FlagReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 48, 3, 2), nn.ReLU()
        )
        self.head = nn.Linear(48, FLAGS)

    def forward(self, flags):
        return self.head(self.body(flags).amax((2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(281)
    stream = Shuffled(Stream(2000, shared_out=args.without))
    loader = DataLoader(stream, batch_size=20, num_workers=2, persistent_workers=True)
    model = FlagReader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        steps = 0
        for flags, letters in loader:
            loss = nn.functional.cross_entropy(model(flags), letters)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        print(f"epoch {epoch}: {steps} steps, loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
