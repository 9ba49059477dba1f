"""Learns to hold a course from a stream of readings, which two workers share.

Nothing is planted: wide layers are the work. Each worker reads every second reading; one reading
in about sixty takes long to repair, which the batches held ahead make up for.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIZE = 256


class Readings(IterableDataset):
    def __init__(self, count):
        self.count = count

    def repair(self, reading):
        time.sleep(0.02)  # asks for what is missing
        return np.nan_to_num(reading)

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        rng = np.random.default_rng(379 + first)
        for number in range(first, self.count, step):
            reading = rng.standard_normal(SIZE, dtype=np.float32)
            if number % 61 == 7:
                reading = self.repair(reading)
            yield torch.from_numpy(reading), np.float32(reading[:4].mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(379)
    loader = DataLoader(Readings(2400), batch_size=60, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Linear(SIZE, 2000),
        nn.GELU(),
        nn.Linear(2000, 2000),
        nn.GELU(),
        nn.Linear(2000, 1),
        nn.Flatten(0),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total, steps = 0.0, 0
        for readings, turns in loader:
            loss = nn.functional.mse_loss(model(readings), turns)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            steps += 1
        print(f"epoch {epoch}: {steps} steps, loss {total / steps:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
