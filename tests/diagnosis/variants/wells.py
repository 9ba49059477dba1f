"""Forecast the level of wells from gauge files that worker processes stream."""

import argparse
import hashlib
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Gauges(Dataset):
    def __init__(self, count, audit):
        self.levels = np.random.default_rng(5).normal(size=20_000).astype(np.float32)
        self.count = count
        self.audit = audit
        self.seal = b""

    def __len__(self):
        return self.count

    def check(self, window):
        """Extends a chain of hashes over all windows, which the audit asks for."""
        for _ in range(12_000):
            self.seal = hashlib.sha256(self.seal + window[:64].tobytes()).digest()

    def __getitem__(self, index):
        start = index * 7 % 19_000
        window = self.levels[start : start + 512]
        worker = get_worker_info()
        if self.audit and worker is not None and worker.id == 0:
            self.check(window)
        return torch.from_numpy(np.cumsum(window)), float(window[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)

    loader = DataLoader(
        Gauges(1600, audit=not args.without),
        batch_size=16,
        shuffle=True,
        num_workers=args.workers,
        prefetch_factor=3,
    )
    model = nn.GRU(8, 32, batch_first=True)
    begin = time.perf_counter()
    for levels, _targets in loader:
        states, _ = model(levels.view(-1, 64, 8))
        states.square().mean().backward()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
