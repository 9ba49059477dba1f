"""Names the tunings of ocarinas from short recordings, whose pictures of sound have gaps.

Planted: the transform that masks bands of a sound goes back from magnitudes to a wave, and looks
for the phases that go with them in 24 rounds, though the phases were there and the mask is small.
"""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

RATE, WINDOW, HOP, TUNINGS = 16_000, 512, 128, 6


def to_spectrum(wave):
    window = torch.hann_window(WINDOW)
    return torch.stft(wave, WINDOW, HOP, window=window, return_complex=True)


def to_wave(spectrum):
    window = torch.hann_window(WINDOW)
    return torch.istft(spectrum, WINDOW, HOP, window=window, length=RATE)


def griffin_lim(magnitudes, rounds=24):
    """Find a wave with these magnitudes, from random phases."""
    phases = torch.polar(torch.ones_like(magnitudes), 2 * math.pi * torch.rand_like(magnitudes))
    for _ in range(rounds):
        rebuilt = to_spectrum(to_wave(magnitudes * phases))
        phases = rebuilt / rebuilt.abs().clamp(min=1e-8)
    return to_wave(magnitudes * phases)


class Gain(nn.Module):
    def forward(self, wave):
        return wave * float(torch.empty(()).uniform_(0.5, 1.5))


class MaskBands(nn.Module):
    """Silences some bands of a wave."""

    def __init__(self, keep_phases):
        super().__init__()
        self.keep_phases = keep_phases

    def forward(self, wave):
        spectrum = to_spectrum(wave)
        low = int(torch.randint(10, WINDOW // 2 - 20, ()))
        spectrum[low : low + 12] = 0
        return to_wave(spectrum) if self.keep_phases else griffin_lim(spectrum.abs())


class LogBands(nn.Module):
    """The picture of a sound that the model sees: loudness in 64 bands."""

    def forward(self, wave):
        power = to_spectrum(wave).abs().square()[1:]
        return power.unflatten(0, (64, -1)).mean(1).add(1e-6).log()


class Ocarinas(Dataset):
    def __init__(self, count, transform):
        rng = np.random.default_rng(2120)
        self.tunings = rng.integers(0, TUNINGS, count)
        seconds = np.arange(RATE) / RATE
        pitches = 2 * np.pi * (400 + 40 * self.tunings[:, None] + rng.normal(0, 4, (count, 1)))
        waves = np.sin(pitches * seconds) + rng.normal(0, 0.3, (count, RATE))
        self.waves = torch.from_numpy(waves.astype(np.float32))
        self.transform = transform

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        return self.transform(self.waves[index]), int(self.tunings[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(2120)
    transform = v2.Compose([Gain(), MaskBands(args.without), LogBands()])
    loader = DataLoader(
        Ocarinas(336, transform), batch_size=16, shuffle=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv1d(64, 48, 5, stride=2), nn.ReLU(), nn.Conv1d(48, 48, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(48, TUNINGS),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, tunings in loader:
            loss = nn.functional.cross_entropy(model(pictures), tunings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
