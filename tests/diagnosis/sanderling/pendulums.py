"""Learns how a pendulum swings on, with gradients of twelve small batches for each update.

Planted: to save memory, each worker may have only one batch ready; while an update is sent to the
other machines, which takes long, the workers soon rest, and the small batches after it are waited
for. Pauses stand in for the accelerator and the network.
"""

import argparse
import math
import time

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BATCHES, BATCH, EACH, LATENCY, SMALL, UPDATE = 120, 16, 12, 0.11, 0.008, 0.55


class Swings(IterableDataset):
    """Batches of swings, each of which a simulation on another machine sends as a whole."""

    def __init__(self, batches):
        self.batches = batches

    def simulate(self, number):
        time.sleep(LATENCY)
        starts = torch.rand(BATCH, 1, generator=torch.Generator().manual_seed(number))
        return torch.cos(starts * math.pi + torch.arange(33) / 5)

    def __iter__(self):
        worker = get_worker_info()
        for number in range(worker.id, self.batches, worker.num_workers):
            swings = self.simulate(number)
            yield swings[:, :-1], swings[:, -1]


class Cluster:
    """Machines with accelerators that add up their gradients before an update."""

    def __init__(self):
        self.weights = torch.zeros(32)
        self.gradient, self.count = torch.zeros(32), 0

    def backward(self, swings, following):
        time.sleep(SMALL)
        error = swings @ self.weights - following
        self.gradient += error @ swings / len(swings)
        self.count += 1
        return error.square().mean().item()

    def update(self):
        time.sleep(UPDATE)
        self.weights -= 0.02 * self.gradient / self.count
        self.gradient, self.count = torch.zeros(32), 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1093)
    loader = DataLoader(
        Swings(BATCHES), batch_size=None, num_workers=2, persistent_workers=True,
        prefetch_factor=6 if args.without else 1,
    )  # fmt: skip
    cluster = Cluster()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for swings, following in loader:
            loss = cluster.backward(swings, following)
            if cluster.count == EACH:
                cluster.update()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
