"""Tells foreshocks from aftershocks in the records of a network of seismometers."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, STATIONS, BATCH = 100, 240, 40, 16


class Records(Dataset):
    """Three axes of a record; where a station's clock stood still, the gaps are filled."""

    def __init__(self, events, quick):
        rng = np.random.default_rng(8)
        self.waves = rng.normal(0, 1, (40, 3, RATE * SECONDS)).astype(np.float32)
        self.events, self.quick = events, quick
        self.gap = rng.random(RATE * SECONDS) < 0.5

    def __len__(self):
        return self.events

    def filled(self, axis):
        """The axis with each missing value on the line between its neighbours."""
        there = np.flatnonzero(~self.gap)
        if self.quick:
            return np.interp(np.arange(len(axis)), there, axis[there]).astype(np.float32)
        whole = axis.copy()
        for place in np.flatnonzero(self.gap):
            before, after = there[there < place], there[there > place]
            if len(before) and len(after):
                share = (place - before[-1]) / (after[0] - before[-1])
                whole[place] = axis[before[-1]] * (1 - share) + axis[after[0]] * share
        return whole

    def __getitem__(self, event):
        wave = self.waves[event * 7 % len(self.waves)]
        if event % STATIONS == 3:
            wave = np.stack([self.filled(axis) for axis in wave])
        wave = torch.from_numpy(wave - wave.mean(1, keepdims=True))
        spectrum = torch.stft(wave, 256, 64, return_complex=True, window=torch.hann_window(256))
        return torch.log1p(spectrum.abs()), event % 2


class Shocks(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 5, stride=3)
        self.second = nn.Conv2d(channels, channels, 3, stride=2)
        self.last = nn.Linear(channels, 2)

    def forward(self, spectra):
        seen = torch.relu(self.second(torch.relu(self.first(spectra))))
        return self.last(seen.amax((2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    loader = DataLoader(
        Records(800, args.without),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = Shocks()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for spectra, labels in loader:
            loss = nn.functional.cross_entropy(model(spectra), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
