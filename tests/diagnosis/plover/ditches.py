"""Follows ditches in strips of a survey, from a stream that is shuffled in a buffer.

Planted: no strip is given out before the buffer is full, and it is filled anew in each of many
short epochs.
"""

import argparse
import itertools
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WIDTH, BUFFER, BATCH = 256, 700, 16


class Strips(IterableDataset):
    """Strips in random order, each unpacked and smoothed when it is read."""

    def __init__(self, initial, length):
        rng = np.random.default_rng(509)
        heights = rng.normal(0, 1, (50, WIDTH, 40)).cumsum(1)
        self.packed = [zlib.compress(strip.astype(np.float32).tobytes(), 1) for strip in heights]
        self.initial, self.length = initial, length

    def read(self):
        worker = get_worker_info()
        for number in itertools.count(worker.id, worker.num_workers):
            strip = zlib.decompress(self.packed[number * 7 % 50])
            heights = np.frombuffer(strip, np.float32).reshape(WIDTH, 40)
            yield torch.from_numpy(heights - heights.mean(0)).T, number % 3

    def shuffle(self, strips):
        """Yield strips from a buffer, which goes on filling up to its size while they are used."""
        buffer = list(itertools.islice(strips, self.initial))
        while True:
            buffer.extend(itertools.islice(strips, min(2, BUFFER - len(buffer) + 1)))
            place = int(torch.randint(len(buffer), ()))
            buffer[place], buffer[-1] = buffer[-1], buffer[place]
            yield buffer.pop()

    def __iter__(self):
        share = self.length // get_worker_info().num_workers
        return itertools.islice(self.shuffle(self.read()), share)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(509)
    strips = Strips(16 if args.without else BUFFER, 12 * BATCH)
    loader = DataLoader(strips, batch_size=BATCH, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv1d(40, 48, 7, stride=2), nn.ReLU(), nn.Conv1d(48, 48, 7, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(48, 3),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for heights, kinds in loader:
            loss = nn.functional.cross_entropy(model(heights), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
