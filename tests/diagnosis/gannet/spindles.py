"""Learns the balance of spindles; the normalisation of the inputs is kept up to date on the way.

Planted: the first of three training workers, and no other, adds each of its samples to running
moments in Python, so that it makes a batch in several times the time of the others.
"""

import argparse
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

CHANNELS, MOMENTS = 6, 256


class Running:
    """Mean, spread and range of all values that were added, by Welford's method."""

    def __init__(self):
        self.count, self.mean, self.squares = 0, 0.0, 0.0
        self.least, self.most = math.inf, -math.inf

    def add(self, values):
        for value in values:
            self.count += 1
            apart = value - self.mean
            self.mean += apart / self.count
            self.squares += apart * (value - self.mean)
            self.least, self.most = min(self.least, value), max(self.most, value)

    @property
    def spread(self):
        return math.sqrt(self.squares / max(1, self.count - 1)) or 1.0


class Spindles(Dataset):
    def __init__(self, count, follow):
        draw = torch.Generator().manual_seed(509)
        self.turns = torch.randn(60, CHANNELS, MOMENTS, generator=draw)
        self.count, self.follow, self.running = count, follow, Running()

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        turns = self.turns[index % 60].roll(index, 1)
        spectrum = torch.fft.rfft(turns * torch.hann_window(MOMENTS)).abs()
        worker = get_worker_info()
        if self.follow and worker and worker.id == 0:
            for values in (turns, turns.diff(), spectrum):
                self.running.add(values.flatten().tolist())
        return spectrum[:, 1:].contiguous(), turns.std()


def build_model(size=32):
    return nn.Sequential(
        nn.Conv1d(CHANNELS, size, 9, stride=2), nn.ReLU(), nn.Conv1d(size, size, 9, stride=2),
        nn.ReLU(), nn.Flatten(), nn.LazyLinear(1), nn.Flatten(0),
    )  # fmt: skip


def train(model, loader, optimizer):
    begin = time.perf_counter()
    for spectra, spreads in loader:
        loss = nn.functional.mse_loss(model(spectra), spreads)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f} training, loss {loss.item():.4f}")


@torch.no_grad()
def validate(model, loader):
    begin = time.perf_counter()
    apart = [(model(spectra) - spreads).abs().mean() for spectra, spreads in loader]
    print(f"seconds {time.perf_counter() - begin:.3f} validation, {torch.stack(apart).mean():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(509)
    training = DataLoader(
        Spindles(2400, follow=not args.without), batch_size=16, shuffle=True, num_workers=3,
        persistent_workers=True,
    )  # fmt: skip
    validation = DataLoader(Spindles(240, follow=False), batch_size=48)
    model = build_model()
    model(torch.zeros(1, CHANNELS, MOMENTS // 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(args.epochs):
        train(model, training, optimizer)
        validate(model, validation)


if __name__ == "__main__":
    main()
