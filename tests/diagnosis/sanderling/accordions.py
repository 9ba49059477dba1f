"""Tells accordions apart, with sounds that are first brought to one pitch.

Planted: the change of pitch resamples by a function that makes its filters anew in each call, which
takes longer than all else that is done to a sound.
"""

import argparse
import functools
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

RATE, KINDS, WINDOW, STEP = 22_050, 6, 512, 256


def sinc_filters(before, after, width=6, rolloff=0.99):
    """Return filters of shape (after, 1, taps), and by how much to pad."""
    base = min(before, after) * rolloff
    reach = math.ceil(width * before / base)
    places = torch.arange(-reach, reach + before, dtype=torch.float64)[None, None] / before
    offsets = torch.arange(0, -after, -1, dtype=torch.float64)[:, None, None] / after
    times = ((offsets + places) * base).clamp(-width, width)
    window = torch.cos(times * math.pi / width / 2) ** 2
    times = times * math.pi
    waves = torch.where(times == 0, 1.0, times.sin() / times)
    return (waves * window * base / before).float(), reach


kept_filters = functools.lru_cache(sinc_filters)


def resample(sound, before, after, filters=sinc_filters):
    shared = math.gcd(before, after)
    before, after = before // shared, after // shared
    weights, reach = filters(before, after)
    padded = nn.functional.pad(sound[None, None], (reach, reach + before))
    pieces = nn.functional.conv1d(padded, weights, stride=before)
    return pieces[0].T.reshape(-1)[: math.ceil(after * len(sound) / before)]


class ToPitch(nn.Module):
    """Plays a sound so many hundredths of a semitone higher."""

    def __init__(self, cents, filters):
        super().__init__()
        self.filters = filters
        self.rate = int(RATE / 2 ** (cents / 1200))

    def forward(self, sound):
        return resample(sound, RATE // 90, self.rate // 90, self.filters)


class AddHiss(nn.Module):
    def forward(self, sound):
        return sound + 0.01 * torch.randn_like(sound)


class Spectrum(nn.Module):
    def forward(self, sound):
        window = torch.hann_window(WINDOW)
        power = torch.stft(sound[:16_000], WINDOW, STEP, window=window, return_complex=True).abs()
        return torch.log1p(power)


class Accordions(Dataset):
    def __init__(self, count, transform):
        rng = np.random.default_rng(1009)
        self.notes = torch.from_numpy(rng.uniform(200, 900, (count, 3)).astype(np.float32))
        self.kinds = rng.integers(0, KINDS, count)
        self.transform = transform

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        kind = int(self.kinds[index])
        times = torch.arange(RATE) / RATE
        reeds = [(times * note * (1 + 0.01 * kind) % 1) - 0.5 for note in self.notes[index]]
        return self.transform(sum(reeds)), kind


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1009)
    filters = kept_filters if args.without else sinc_filters
    transform = v2.Compose([ToPitch(-300, filters), AddHiss(), Spectrum()])
    loader = DataLoader(
        Accordions(600, transform), batch_size=12, shuffle=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv1d(WINDOW // 2 + 1, 32, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(32, KINDS),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for spectra, kinds in loader:
            loss = nn.functional.cross_entropy(model(spectra), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
