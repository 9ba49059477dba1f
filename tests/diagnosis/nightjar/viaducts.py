"""Watches viaducts by the shaking that trains give them, with spectra that a cache should keep.

Planted: the key of the cache has the window's place in it, which is drawn anew for each sample,
so that a whole record's spectrum is worked out each time and the cache never has it.
"""

import argparse
import time
from collections import OrderedDict
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORDS, LENGTH, WINDOW, BATCH, BATCHES, STEP = 12, 960_000, 32, 16, 40, 0.08


class Cache:
    def __init__(self, size):
        self.size, self.kept = size, OrderedDict()

    def get(self, key, make):
        if key not in self.kept:
            self.kept[key] = make()
            if len(self.kept) > self.size:
                self.kept.popitem(last=False)
        self.kept.move_to_end(key)
        return self.kept[key]


class Viaducts(Dataset):
    def __init__(self, by_window):
        rng = np.random.default_rng(311)
        self.records = rng.normal(0, 1, (RECORDS, LENGTH)).astype(np.float32)
        self.cache, self.by_window = Cache(32), by_window

    def __len__(self):
        return BATCH * BATCHES

    def spectrum(self, record):
        """Return how strong each of 40 bands is, over time."""
        frames = np.lib.stride_tricks.sliding_window_view(self.records[record], 512)[::128]
        power = np.abs(np.fft.rfft(frames * np.hanning(512), axis=1)) ** 2
        edges = np.geomspace(1, 256, 41).astype(int)
        bands = [power[:, low : max(high, low + 1)].mean(axis=1) for low, high in pairwise(edges)]
        return np.log1p(np.stack(bands)).astype(np.float32)

    def __getitem__(self, index):
        record = index % RECORDS
        frames = (LENGTH - 512) // 128 + 1
        start = int(torch.randint(frames - WINDOW, ()))
        key = (record, start) if self.by_window else record
        spectrum = self.cache.get(key, lambda: self.spectrum(record))
        window = spectrum[:, start : start + WINDOW]
        return window - window.mean(), record % 4


class Watcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(40, 24, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(48, 4)
        )

    def forward(self, windows):
        return self.layers(windows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(311)
    torch.set_num_threads(1)
    data = Viaducts(by_window=not args.without)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = Watcher()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (windows, kinds) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(windows), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the finite elements, on a card
            if step % 20 == 0:
                print(f"epoch {epoch}, step {step}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
