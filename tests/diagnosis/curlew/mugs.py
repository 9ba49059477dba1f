"""Finds cracks in mugs by the sound that they make, with workers placed by node of the machine.

Planted: the placement has eight workers to a node in mind, so that all four workers are bound to
the cores of the first node, which is one core of two.
"""

import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, ECHOES = 4096, 24


class Placement:
    """Binds each worker to the cores of a node; a node has half of the cores."""

    def __init__(self, workers_a_node):
        cores = sorted(os.sched_getaffinity(0))
        half = max(len(cores) // 2, 1)
        self.nodes = [cores[:half], cores[half:] or cores[:half]]
        self.workers_a_node = workers_a_node

    def __call__(self, worker):
        node = self.nodes[worker // self.workers_a_node % len(self.nodes)]
        os.sched_setaffinity(0, node)


class Knocks(Dataset):
    """Sounds of mugs that were knocked at, as the strength of their echoes."""

    def __init__(self, count):
        rng = np.random.default_rng(853)
        self.knock = rng.standard_normal(LENGTH).astype(np.float32)
        self.delays = rng.integers(1, LENGTH // 2, (count, ECHOES))

    def __len__(self):
        return len(self.delays)

    def __getitem__(self, index):
        sound = self.knock.copy()
        for delay in self.delays[index]:
            sound[delay:] += 0.3 * self.knock[:-delay]
        strength = []
        for start in range(0, LENGTH, 256):
            part = np.fft.rfft(sound[start : start + 256], 2048)
            strength.append(np.log1p(np.abs(np.fft.irfft(np.abs(part) ** 2))[:128]))
        return torch.from_numpy(np.array(strength, np.float32)), index % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(853)
    loader = DataLoader(
        Knocks(4000), batch_size=40, shuffle=True, num_workers=4, persistent_workers=True,
        worker_init_fn=None if args.without else Placement(8),
    )  # fmt: skip
    model = nn.Sequential(nn.Flatten(), nn.Linear(16 * 128, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for strengths, cracked in loader:
            loss = nn.functional.cross_entropy(model(strengths), cracked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
