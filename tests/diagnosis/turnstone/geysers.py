"""Learns the shape of geysers' jets with a network that codes and decodes, from a stream.

Nothing is planted: the network is the work. One worker reads a stream through a buffer that
shuffles, and a gradient's norm is noted at each step.
"""

import argparse
import itertools
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SIDE, BATCH, BUFFER = 24, 32, 300


class Jets(IterableDataset):
    """Jets as smooth columns, with another height and wind each."""

    def __init__(self, count):
        self.count = count
        self.down, self.right = np.mgrid[:SIDE, :SIDE].astype(np.float32)

    def __len__(self):
        return self.count

    def __iter__(self):
        rng = np.random.default_rng(1187)
        for _ in range(self.count):
            height, wind = rng.random(2)
            lean = self.right - SIDE / 2 - wind * (SIDE - self.down) * 0.4
            jet = np.exp(-np.square(lean / 3)) * (self.down > SIDE * (1 - height))
            yield torch.from_numpy(jet.astype(np.float32))


class Shuffled(IterableDataset):
    def __init__(self, source, size):
        self.source, self.size = source, size

    def __len__(self):
        return len(self.source)

    def __iter__(self):
        rng, held = np.random.default_rng(1193), []
        for item in self.source:
            if len(held) < self.size:
                held.append(item)
                continue
            place = int(rng.integers(self.size))
            held[place], item = item, held[place]
            yield item
        rng.shuffle(held)
        yield from held


def network():
    sizes = [SIDE * SIDE, 1200, 600, 16, 600, 1200, SIDE * SIDE]
    layers = [nn.Flatten()]
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1187)
    loader = DataLoader(
        Shuffled(Jets(6400), BUFFER), batch_size=BATCH, num_workers=1, persistent_workers=True
    )
    model, norms = network(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for jets in loader:
            loss = nn.functional.mse_loss(model(jets), jets.flatten(1))
            optimizer.zero_grad()
            loss.backward()
            norms.append(model[1].weight.grad.norm().item())
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}, gradient {np.mean(norms):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
