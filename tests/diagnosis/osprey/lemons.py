"""Sorts lemons by spectra, which come in shards from an iterable data set.

Planted: the data set picks its worker's shards when it is made, where there is no worker yet, so
that each of two workers goes through all shards. A short validation has no workers.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BANDS = 96


class Spectra(IterableDataset):
    """Shards of spectra, smoothed and with their slope beside them."""

    def __init__(self, shards, each=80, late=False):
        self.all, self.each, self.late = list(range(shards)), each, late
        self.mine = self.pick()

    def pick(self):
        info = get_worker_info()
        return self.all if info is None else self.all[info.id :: info.num_workers]

    def open(self, shard):
        rng = np.random.default_rng(shard)
        return rng.random((self.each, BANDS), np.float32), rng.integers(0, 3, self.each)

    def prepare(self, spectrum):
        smooth = np.convolve(spectrum, np.hanning(7) / 3, "same")
        slope = np.gradient(smooth)
        return np.stack([smooth / smooth.max(), slope]).astype(np.float32)

    def __iter__(self):
        for shard in self.pick() if self.late else self.mine:
            spectra, grades = self.open(shard)
            for spectrum, grade in zip(spectra, grades, strict=True):
                yield self.prepare(spectrum), int(grade)


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(2, width, 7, padding=3), nn.ReLU(),
            nn.Conv1d(width, width, 7, padding=3, stride=2), nn.ReLU(),
            nn.Conv1d(width, width, 7, padding=3, stride=2), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(width, 3)

    def forward(self, spectra):
        return self.head(self.layers(spectra).mean(2))


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        right = [(model(x).argmax(1) == y).float().mean().item() for x, y in loader]
    model.train()
    return sum(right) / len(right)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(61)
    loader = DataLoader(Spectra(80, late=args.without), batch_size=16, num_workers=2)
    held_out = DataLoader(Spectra(3), batch_size=40)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {validate(model, held_out):.3f} of the held out are right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
