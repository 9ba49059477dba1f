"""Estimates how warm igloos are, on an accelerator, for which a pause stands in.

Nothing is planted: the accelerator sets the pace. Eight workers wait for a station in the north,
which answers each request in its own time, at times late; all of it is hidden behind the steps.
"""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

VALUES, STEP, LATENCY = 20, 0.2, 0.02


class Igloos(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(1223)
        self.values = rng.normal(0, 1, (count, VALUES)).astype(np.float32)
        self.warmth = self.values[:, :4].sum(1)
        self.latencies = rng.gamma(4, LATENCY / 4, count)
        self.tries = 0

    def __len__(self):
        return len(self.warmth)

    def request(self, index):
        self.tries += 1
        time.sleep(self.latencies[index])
        if self.tries % 30 == 0:
            time.sleep(4 * LATENCY)  # the line was busy
        return self.values[index]

    def __getitem__(self, index):
        return torch.from_numpy(self.request(index)), float(self.warmth[index])


class Accelerator:
    """Takes some time for each batch, and no core."""

    def __init__(self):
        self.weights = torch.zeros(VALUES)

    def train(self, values, warmth):
        time.sleep(STEP)
        error = values @ self.weights - warmth.float()
        self.weights -= 0.05 * error @ values / len(error)
        return error.abs().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1223)
    loader = DataLoader(
        Igloos(320), batch_size=10, shuffle=True, num_workers=8, persistent_workers=True
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        errors = [accelerator.train(*batch) for batch in loader]
        print(f"epoch {epoch}: error {errors[-1]:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
