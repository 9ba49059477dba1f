"""Names the notes that bassoons play, from spectra of short recordings.

Nothing is planted: a network of convolutions over time is the work. One worker resamples
recordings and makes their spectra ahead of it.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

RATE, SAMPLES, NOTES = 8000, 6000, 24


class Resample:
    """Stretches a recording a little, as if it had been played faster or slower."""

    def __call__(self, wave):
        length = int(len(wave) * np.random.uniform(0.95, 1.05))
        return np.interp(np.linspace(0, len(wave) - 1, length), np.arange(len(wave)), wave)


class Cut:
    def __call__(self, wave):
        begin = np.random.randint(len(wave) - SAMPLES + 1)
        return wave[begin : begin + SAMPLES].astype(np.float32)


class Spectrum:
    def __init__(self):
        self.window = np.hanning(256).astype(np.float32)

    def __call__(self, wave):
        frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::64]
        bins = np.abs(np.fft.rfft(frames * self.window, axis=1))
        return torch.from_numpy(np.log1p(bins).astype(np.float32).T.copy())


class Notes(Dataset):
    def __init__(self, count, transform):
        self.count, self.transform = count, transform
        times = np.arange(SAMPLES + 600) / RATE
        pitches = 60 * 2 ** (np.arange(NOTES) / 12)
        self.waves = [np.sin(2 * np.pi * pitch * times) for pitch in pitches]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.waves[index % NOTES]), index % NOTES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(601)
    notes = Notes(768, transforms.Compose([Resample(), Cut(), Spectrum()]))
    loader = DataLoader(
        notes, batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv1d(129, 192, 7, padding=3), nn.ReLU(), nn.Conv1d(192, 192, 7, padding=3), nn.ReLU(),
        nn.Conv1d(192, 192, 7, padding=3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(192, NOTES),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for spectra, names in loader:
            loss = nn.functional.cross_entropy(model(spectra), names)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
