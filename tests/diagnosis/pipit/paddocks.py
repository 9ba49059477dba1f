"""Estimates the grass on paddocks from tiles of a satellite, out of a provider's service.

Planted: all readers share an allowance of tiles a second, as the provider asks of free accounts,
and the workers wait for it.
"""

import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PADDOCKS, BANDS, SIDE, BATCH, STEP = 800, 6, 64, 16, 0.09
FREE, PAID, BURST = 60.0, 2000.0, 8


class Allowance:
    """A bucket of tokens: so many a second, some saved up."""

    def __init__(self, rate, context):
        self.rate = rate
        self.guard = context.Lock()
        self.tokens = context.Value("d", BURST, lock=False)
        self.last = context.Value("d", time.monotonic(), lock=False)

    def take(self):
        while True:
            with self.guard:
                now = time.monotonic()
                saved = self.tokens.value + (now - self.last.value) * self.rate
                self.tokens.value, self.last.value = min(saved, BURST), now
                if self.tokens.value >= 1:
                    self.tokens.value -= 1
                    return
                lacking = 1 - self.tokens.value
            time.sleep(lacking / self.rate)


class Service:
    def __init__(self, allowance):
        self.allowance = allowance
        self.tiles = np.random.default_rng(17).integers(
            4000, size=(40, BANDS, SIDE, SIDE), dtype=np.uint16
        )

    def tile(self, number):
        self.allowance.take()
        time.sleep(0.002)  # the line
        return self.tiles[number % len(self.tiles)].copy()


class Paddocks(Dataset):
    def __init__(self, service):
        self.service = service

    def __len__(self):
        return PADDOCKS

    def __getitem__(self, index):
        bands = self.service.tile(index).astype(np.float32) / 4000
        green = (bands[3] - bands[2]) / (bands[3] + bands[2] + 1e-3)
        cloud = bands[0] > 0.97
        bands[:, cloud] = np.median(bands, axis=(1, 2))[:, None]
        if np.random.rand() < 0.5:
            bands = bands[:, ::-1].copy()
        return torch.from_numpy(bands), np.float32(green.mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(17)
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    allowance = Allowance(PAID if args.without else FREE, context)
    loader = DataLoader(
        Paddocks(Service(allowance)),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context=context,
    )
    model = nn.Sequential(
        nn.Conv2d(BANDS, 16, 5, stride=3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(64, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for bands, grass in loader:
            loss = nn.functional.mse_loss(model(bands).squeeze(1), grass)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
