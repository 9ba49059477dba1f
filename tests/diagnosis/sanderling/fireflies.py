"""Learns from a buffer of what was seen before to fly to where fireflies glow.

Nothing is planted: the network is the work. One worker draws batches from the buffer by how far off
the last guess was, ahead of it, and a second network follows the first.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

VALUES, MOVES, BATCH, WIDTH = 32, 5, 64, 512


class Buffer(IterableDataset):
    """Batches of steps that were seen; those with large errors are drawn more often."""

    def __init__(self, size, batches):
        rng = np.random.default_rng(1231)
        self.states = rng.normal(0, 1, (size, VALUES)).astype(np.float32)
        self.following = self.states + rng.normal(0, 0.1, (size, VALUES)).astype(np.float32)
        self.moves = rng.integers(0, MOVES, size)
        self.glow = self.following[:, :3].sum(1)
        self.shares = np.cumsum(rng.gamma(1, 1, size))
        self.batches = batches

    def __iter__(self):
        rng = np.random.default_rng()
        for _ in range(self.batches):
            drawn = np.searchsorted(self.shares, rng.random(BATCH) * self.shares[-1])
            arrays = self.states, self.moves, self.glow, self.following
            yield tuple(torch.from_numpy(array[drawn]) for array in arrays)


def make_network():
    return nn.Sequential(
        nn.Linear(VALUES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
        nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, MOVES),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1231)
    loader = DataLoader(
        Buffer(20_000, 400), batch_size=None, num_workers=1, persistent_workers=True
    )
    network, follower = make_network(), make_network()
    follower.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for states, moves, glow, following in loader:
            with torch.no_grad():
                best = glow + 0.9 * follower(following).max(1).values
            guess = network(states).gather(1, moves[:, None]).squeeze(1)
            loss = nn.functional.smooth_l1_loss(guess, best)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for old, new in zip(follower.parameters(), network.parameters(), strict=True):
                    old.lerp_(new, 0.01)
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
