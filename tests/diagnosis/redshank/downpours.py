"""Says where a downpour will be in half an hour, from simulated fields of rain."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIDE, PAST, BATCH = 48, 4, 8


class Rain(IterableDataset):
    """Storms that wander and fade; each worker has some of its own."""

    def __init__(self, samples):
        self.samples = samples
        self.rows, self.columns = np.mgrid[:SIDE, :SIDE].astype(np.float32)

    def storm(self, rng):
        place, wind = rng.uniform(8, 40, 2), rng.uniform(-2, 2, 2)
        size, fading = rng.uniform(2, 6), rng.uniform(0.85, 1.05)
        frames = []
        for moment in range(PAST + 1):
            row, column = place + wind * moment
            far = (self.rows - row) ** 2 + (self.columns - column) ** 2
            frames.append(np.exp(-far / size**2) * fading**moment)
        return np.stack(frames)

    def __iter__(self):
        worker = get_worker_info()
        count = self.samples // worker.num_workers
        rng = np.random.default_rng(worker.seed % 2**32)
        for _ in range(count):
            fields = sum(self.storm(rng) for _ in range(3)).astype(np.float32)
            yield torch.from_numpy(fields[:PAST]), torch.from_numpy(fields[PAST:])


def pair(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.SiLU(),
        nn.Conv2d(outside, outside, 3, padding=1), nn.SiLU(),
    )  # fmt: skip


class Net(nn.Module):
    """A small U: down, through the middle, and up again."""

    def __init__(self, channels=32):
        super().__init__()
        self.down, self.middle = pair(PAST, channels), pair(channels, 2 * channels)
        self.up = pair(3 * channels, channels)
        self.last = nn.Conv2d(channels, 1, 1)

    def forward(self, fields):
        fine = self.down(fields)
        coarse = self.middle(nn.functional.max_pool2d(fine, 2))
        wide = nn.functional.interpolate(coarse, scale_factor=2)
        return self.last(self.up(torch.cat([fine, wide], 1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(25)
    torch.set_num_threads(1)
    loader = DataLoader(
        Rain(640),
        BATCH,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = steps = 0
        for fields, later in loader:
            loss = nn.functional.mse_loss(model(fields), later)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, steps = total + loss.item(), steps + 1
        print(f"epoch {epoch}: loss {total / steps:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
