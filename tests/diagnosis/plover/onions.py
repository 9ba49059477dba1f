"""Weighs onions in pictures of two growers, mixed in one stream, on an accelerator.

Planted: the mixed stream has as many parts as the grower with the fewest files, which is one, so
that one worker of three reads everything and the others nothing.
"""

import argparse
import itertools
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIDE, STEP, LATENCY = 40, 0.012, 0.004


class Grower:
    """Pictures in some files, each of which is asked for at a distant store."""

    def __init__(self, files, pictures, seed):
        rng = np.random.default_rng(seed)
        self.base = rng.random((SIDE, SIDE)).astype(np.float32)
        self.files, self.pictures = files, pictures

    def read(self, file):
        for number in range(self.pictures):
            time.sleep(LATENCY)
            yield torch.from_numpy(np.roll(self.base, number * 7 + file, 0)), float(number % 5)

    def lines(self, part, parts):
        """Yield a part of the pictures, by their numbers in all files."""
        for number in range(part, self.files * self.pictures, parts):
            time.sleep(LATENCY)
            yield torch.from_numpy(np.roll(self.base, number, 0)), float(number % 5)


class Mixed(IterableDataset):
    def __init__(self, growers, by_lines):
        self.growers, self.by_lines = growers, by_lines

    def parts(self):
        return min(grower.files for grower in self.growers)

    def streams(self, worker):
        for grower in self.growers:
            if self.by_lines:
                yield grower.lines(worker.id, worker.num_workers)
            elif worker.id < self.parts():
                step = min(self.parts(), worker.num_workers)
                files = range(worker.id, grower.files, step)
                yield itertools.chain.from_iterable(map(grower.read, files))

    def __iter__(self):
        for pair in zip(*self.streams(get_worker_info()), strict=False):
            yield from pair


class Accelerator:
    """Takes some time for each batch, and no core."""

    def train(self, pictures, weights):
        time.sleep(STEP)
        return (pictures.mean((1, 2)) - weights).square().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(547)
    growers = [Grower(9, 52, 547), Grower(1, 468, 548)]
    loader = DataLoader(
        Mixed(growers, args.without), batch_size=12, num_workers=3, persistent_workers=True
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.train(pictures, weights.float()) for pictures, weights in loader]
        print(f"epoch {epoch}: {len(losses)} steps, loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
