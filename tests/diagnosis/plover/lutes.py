"""Tells lutes apart by short recordings, as if each had been played in another room.

Planted: the transform that adds a room's echo convolves in the time domain, tap by tap.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SAMPLES, TAPS, ROOMS = 16_000, 8000, 12


class AddEcho:
    def __init__(self, rooms, by_spectrum):
        self.rooms, self.by_spectrum = rooms, by_spectrum

    def __call__(self, wave):
        room = self.rooms[np.random.randint(len(self.rooms))]
        if self.by_spectrum:
            size = 1 << (len(wave) + len(room) - 2).bit_length()
            product = np.fft.rfft(wave, size) * np.fft.rfft(room, size)
            return np.fft.irfft(product, size)[: len(wave)].astype(np.float32)
        return np.convolve(wave, room)[: len(wave)]


class AddHiss:
    def __call__(self, wave):
        return wave + np.random.standard_normal(len(wave)).astype(np.float32) * 0.01


class Spectrogram:
    def __call__(self, wave):
        window = torch.hann_window(512)
        bins = torch.stft(torch.from_numpy(wave), 512, 256, window=window, return_complex=True)
        return torch.log1p(bins.abs())


class Lutes(Dataset):
    def __init__(self, count, transform):
        rng = np.random.default_rng(421)
        self.count, self.transform = count, transform
        self.waves = rng.standard_normal((40, SAMPLES)).astype(np.float32)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.waves[index % 40]), index % 6


def make_rooms():
    rng = np.random.default_rng(422)
    decay = np.exp(-np.arange(TAPS) / 1500)
    return (rng.standard_normal((ROOMS, TAPS)) * decay).astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(421)
    transform = transforms.Compose([AddEcho(make_rooms(), args.without), AddHiss(), Spectrogram()])
    loader = DataLoader(
        Lutes(240, transform), batch_size=12, shuffle=True, num_workers=1,
        persistent_workers=True, drop_last=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv1d(257, 64, 5, padding=2), nn.ReLU(), nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 6),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for spectra, lutes in loader:
            loss = nn.functional.cross_entropy(model(spectra), lutes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
