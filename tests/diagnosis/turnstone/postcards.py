"""Learns handwriting on postcards, which are read from shards that workers share out.

Planted: the number of shards stands as a constant in a helper, from a time when there were 27; now
there are nine, so that the first of three workers reads them all, and the others nothing.
"""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, A_SHARD, SIDE = 9, 45, 24


def share(count, worker, workers):
    """Return which of `count` shards a worker reads: neighbours, for the sake of the disk."""
    each = -(-count // workers)
    return range(worker * each, (worker + 1) * each)


class Shard:
    """A file on a server, which gives one card after another."""

    def __init__(self, number):
        self.number = number

    def cards(self):
        rng = np.random.default_rng(1117 + self.number)
        for card in range(A_SHARD):
            time.sleep(0.02)
            yield rng.random((SIDE, SIDE), dtype=np.float32), card % 5


class Postcards(IterableDataset):
    def __init__(self, shards, known=27):
        self.shards, self.known = shards, known

    def __iter__(self):
        info = get_worker_info()
        for number in share(self.known, info.id, info.num_workers):
            if number < len(self.shards):
                for card, writer in self.shards[number].cards():
                    ink = (card > 0.5 + 0.05 * writer).astype(np.float32)
                    yield torch.from_numpy(ink), writer


class Accelerator:
    """Trains for some time with each batch, and needs no core."""

    def __init__(self):
        self.weights = torch.zeros(SIDE * SIDE, 5)

    def train(self, cards, writers):
        time.sleep(0.06)
        flat = cards.flatten(1)
        error = torch.nn.functional.one_hot(writers, 5) - flat @ self.weights
        self.weights += 1e-4 * flat.T @ error
        return error.square().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1117)
    shards = [Shard(number) for number in range(SHARDS)]
    options = {"known": SHARDS} if args.without else {}
    loader = DataLoader(
        Postcards(shards, **options), batch_size=9, num_workers=3, persistent_workers=True
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for cards, writers in loader:
            error = accelerator.train(cards, writers)
        print(f"epoch {epoch}: error {error:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
