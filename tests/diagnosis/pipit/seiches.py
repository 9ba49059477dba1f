"""Forecasts the level of a lake from the hours before, with a convolutional network.

Planted: the settings, which come from a larger machine, give the training step four threads, and
they fight for two cores with each other and with the loader's worker.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GAUGES, HOURS, PAST, AHEAD = 12, 9000, 336, 24


@dataclass(frozen=True)
class Settings:
    batch_size: int = 32
    windows: int = 1920
    channels: int = 32
    layers: int = 6
    threads: int = 4
    learning_rate: float = 2e-3


def levels(rng):
    """Return hourly levels of all gauges, (gauges, hours), in metres."""
    hours = np.arange(HOURS)
    tides = [np.sin(hours / rng.uniform(3, 30) + rng.uniform(0, 6)) for _ in range(GAUGES)]
    return np.stack(tides).astype(np.float32) + rng.normal(0, 0.1, (GAUGES, HOURS))


class Windows(Dataset):
    def __init__(self, series, count):
        self.series, self.count = series.astype(np.float32), count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        start = index * 4 % (HOURS - PAST - AHEAD)
        window = self.series[:, start : start + PAST + AHEAD]
        past = window[:, :PAST] * np.random.uniform(0.9, 1.1)
        gone = np.random.rand(GAUGES, PAST) < 0.02
        past = np.where(gone, past.mean(1, keepdims=True), past)
        return torch.from_numpy(past.astype(np.float32)), torch.from_numpy(window[0, PAST:])


class Residual(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, levels):
        return levels + torch.relu(self.norm(self.conv(levels)))


def network(settings):
    blocks = [Residual(settings.channels, 2**layer) for layer in range(settings.layers)]
    return nn.Sequential(
        nn.Conv1d(GAUGES, settings.channels, 5, padding=2),
        *blocks,
        nn.AdaptiveAvgPool1d(8),
        nn.Flatten(),
        nn.Linear(8 * settings.channels, AHEAD),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    settings = Settings(threads=1) if args.without else Settings()
    torch.manual_seed(3)
    torch.set_num_threads(settings.threads)
    data = Windows(levels(np.random.default_rng(3)), settings.windows)
    loader = DataLoader(
        data, settings.batch_size, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = network(settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for past, ahead in loader:
            loss = nn.functional.huber_loss(model(past), ahead)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
