"""Forecasts how late trains are, on an accelerator for which a pause stands in.

Planted: every sixteenth step tries the model out and takes long, but the workers may be no more
than two batches ahead each and soon stop, so that the short steps after it wait for them.
"""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

STOPS, EVERY, LATENCY = 32, 16, 0.11


class Journeys(Dataset):
    """Journeys in a database of the railway, which answers one query for each batch."""

    def __init__(self, count):
        self.delays = np.random.default_rng(809).gamma(1.5, 2, (count, STOPS + 1))

    def __len__(self):
        return len(self.delays)

    def query(self, numbers):
        time.sleep(LATENCY)
        return self.delays[numbers].astype(np.float32)

    def __getitems__(self, numbers):
        return [(row[:-1], row[-1]) for row in torch.from_numpy(self.query(numbers))]


class Accelerator:
    """Trains for some time with each batch, and needs no core."""

    def __init__(self):
        self.weights = torch.zeros(STOPS)

    def train(self, delays, following):
        time.sleep(0.012)
        error = following - delays @ self.weights
        self.weights += 1e-5 * error @ delays
        return error.abs().mean().item()

    def try_out(self):
        """Forecast the journeys of a whole day."""
        time.sleep(0.75)
        return self.weights.norm().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(809)
    ahead = {"prefetch_factor": 10} if args.without else {}
    loader = DataLoader(
        Journeys(1152), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True,
        **ahead,
    )  # fmt: skip
    accelerator, step = Accelerator(), 0
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for delays, following in loader:
            error = accelerator.train(delays, following)
            step += 1
            if step % EVERY == 0:
                print(f"step {step}: error {error:.2f}, weights {accelerator.try_out():.3f}")
        print(f"epoch {epoch} ended")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
