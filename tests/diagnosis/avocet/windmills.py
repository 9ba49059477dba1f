"""Foresees the power of windmills from messages of a bus, on an accelerator (a pause stands in).

Planted: a poll of the bus takes 0.42 s and brings messages for sixteen batches. The only worker
may have two batches ready, so that it polls again only when these are nearly used up, and the
accelerator waits for most of the poll. On average, the worker is faster than the accelerator.
"""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

VALUES, BATCH, BATCHES, STEP = 18, 24, 80, 0.028
POLL, MOST = 0.42, 16 * BATCH


class Bus:
    """Messages that wait on a far server until somebody polls for them."""

    def __init__(self, messages):
        rng = np.random.default_rng(3119)
        self.winds = rng.normal(0, 1, (messages, VALUES)).astype(np.float32)
        self.powers = np.tanh(self.winds[:, :3].sum(1)) + 0.1 * self.winds[:, 5]

    def poll(self, offset):
        """Return the next messages; the server answers when it has put them together."""
        time.sleep(POLL)
        end = min(offset + MOST, len(self.powers))
        return [(self.winds[place], float(self.powers[place])) for place in range(offset, end)]


class Messages(IterableDataset):
    """All messages from the first to the last, some of which are broken and left out."""

    def __init__(self, bus):
        self.bus = bus
        self.left_out = 0

    def __iter__(self):
        offset = 0
        while messages := self.bus.poll(offset):
            offset += len(messages)
            for wind, power in messages:
                if abs(wind[-1]) > 6:
                    self.left_out += 1
                    continue
                yield torch.from_numpy(wind), power
            if offset == len(self.bus.powers):
                break


class Accelerator:
    """Takes some time for each batch, and no core."""

    def __init__(self):
        self.weights = torch.zeros(VALUES)

    def train(self, winds, powers):
        time.sleep(STEP)
        errors = winds @ self.weights - powers.float()
        self.weights -= 0.05 * errors @ winds / len(errors)
        return errors.abs().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(3119)
    loader = DataLoader(
        Messages(Bus(BATCH * BATCHES)),
        batch_size=BATCH,
        num_workers=1,
        prefetch_factor=24 if args.without else 2,
        persistent_workers=True,
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        errors = [accelerator.train(winds, powers) for winds, powers in loader]
        print(f"epoch {epoch}: error {np.mean(errors[-10:]):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
