"""Finds which parks people like from maps, on an accelerator (a pause here).

Nothing is planted: the accelerator's step sets the pace. Four workers hide the latency of a server
of maps, whose first is slow; one validation follows each epoch, with a loader that goes on.
"""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SIDE, STEP, LATENCY = 32, 0.1, 0.006


class Maps(Dataset):
    """Maps from a server; the first map of a process comes later, as it has to connect."""

    def __init__(self, numbers):
        self.numbers, self.connected = numbers, False

    def __len__(self):
        return len(self.numbers)

    def connect(self):
        time.sleep(0.15)
        self.connected = True

    def __getitem__(self, index):
        if not self.connected:
            self.connect()
        time.sleep(LATENCY)
        number = self.numbers[index]
        rng = np.random.default_rng(1181 + number)
        green = rng.random((SIDE, SIDE), dtype=np.float32) < 0.2 + 0.01 * (number % 50)
        return torch.from_numpy(green.astype(np.float32)), float(number % 50 > 25)


class Accelerator:
    """Trains for some time with each batch, and needs no core."""

    def __init__(self):
        self.weights = torch.zeros(SIDE)

    def error(self, maps, liked):
        return liked.float() - maps.mean(1) @ self.weights

    def train(self, maps, liked):
        time.sleep(STEP)
        error = self.error(maps, liked)
        self.weights += 0.02 * error @ maps.mean(1) / len(liked)
        return error.square().mean().item()

    def try_out(self, maps, liked):
        time.sleep(STEP)
        return self.error(maps, liked).square().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1181)
    options = {"batch_size": 14, "num_workers": 4, "persistent_workers": True}
    training = DataLoader(Maps(range(560)), shuffle=True, **options)
    validation = DataLoader(Maps(range(560, 700)), **options)
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in training:
            error = accelerator.train(*batch)
        tried = [accelerator.try_out(*batch) for batch in validation]
        print(f"epoch {epoch}: error {error:.3f}, of others {sum(tried) / len(tried):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, validation


if __name__ == "__main__":
    main()
