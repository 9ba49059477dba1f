"""Learns how ripe fruit is from spectra in an archive, which four workers read.

Planted: the data set holds the lock of its count of reads while it waits for the archive, so that
only one of the four workers reads at a time.
"""

import argparse
import logging
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

log = logging.getLogger("ripeness")
BANDS, SEASONS, BATCH, LATENCY = 96, (200, 240, 160), 20, 0.006


class Archive:
    """Spectra in a store that answers after a while."""

    def __init__(self, season, count):
        rng = np.random.default_rng(4013 + season)
        self.spectra = rng.normal(0, 1, (count, BANDS)).astype(np.float32)
        self.ripe = self.spectra[:, :8].mean(1)

    def read(self, index):
        time.sleep(LATENCY)
        return self.spectra[index], self.ripe[index]


class Reads:
    """How many spectra all workers have read, for the bill."""

    def __init__(self):
        self.lock = multiprocessing.Lock()
        self.count = multiprocessing.Value("q", 0, lock=False)


class Spectra(Dataset):
    def __init__(self, archive, reads, strict):
        self.archive, self.reads, self.strict = archive, reads, strict

    def __len__(self):
        return len(self.archive.spectra)

    def billed(self, index):
        if self.strict:
            with self.reads.lock:
                self.reads.count.value += 1
                return self.archive.read(index)
        with self.reads.lock:
            self.reads.count.value += 1
        return self.archive.read(index)

    def __getitem__(self, index):
        spectrum, ripe = self.billed(index)
        spectrum = np.roll(spectrum, np.random.randint(-1, 2))
        return torch.from_numpy(spectrum), torch.tensor(ripe)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(4013)
    reads = Reads()
    data = ConcatDataset(
        Spectra(Archive(season, count), reads, strict=not args.without)
        for season, count in enumerate(SEASONS)
    )
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=4, persistent_workers=True)
    model = nn.Sequential(nn.Linear(BANDS, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.02, total_steps=args.epochs * (len(loader) // 2)
    )
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (spectra, ripe) in enumerate(loader):
            loss = nn.functional.mse_loss(model(spectra).squeeze(1), ripe) / 2
            loss.backward()
            if step % 2:
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        log.info("epoch %d: loss %.4f, %d reads", epoch, loss.item(), reads.count.value)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
