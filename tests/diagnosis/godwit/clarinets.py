"""Finds the direction that a sound comes from, in recordings of an array of 32 microphones.

Planted: whoever reads from a recording tells the kernel afterwards to forget its pages, so that
each window comes from the disk, channel by channel.
"""

import argparse
import os
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

RECORDINGS, CHANNELS, LENGTH, WINDOW, SAMPLES, BATCH = 8, 32, 240_000, 2048, 640, 16


def write_recordings(folder):
    """One channel after the other, as the recorder stores them."""
    rng = np.random.default_rng(5009)
    for number in range(RECORDINGS):
        noise = rng.integers(-2000, 2000, LENGTH + CHANNELS * 8, dtype=np.int16)
        path = Path(folder, f"array-{number}.pcm")
        with path.open("wb") as file:
            for channel in range(CHANNELS):
                begin = channel * (number % 4 + 1)
                file.write(noise[begin : begin + LENGTH].tobytes())
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def opened(path, tidy):
    file = path.open("rb", buffering=0)
    try:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        yield file
    finally:
        if tidy:  # leaves the memory of the machine to others
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.close()


class ToSpectra:
    def __init__(self):
        self.window = torch.hann_window(256)

    def __call__(self, sound):
        spectra = torch.stft(sound, 256, 128, window=self.window, return_complex=True)
        return torch.cat([spectra.real, spectra.imag], dim=1)[:, ::4]


class Loudness:
    def __call__(self, sound):
        return sound * (0.5 + torch.rand(()))


class Directions(Dataset):
    def __init__(self, folder, tidy):
        self.paths = sorted(Path(folder).glob("array-*.pcm"))
        self.tidy = tidy
        self.transform = transforms.Compose([Loudness(), ToSpectra()])
        self.starts = np.random.default_rng(5011).integers(0, LENGTH - WINDOW, SAMPLES)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        number = index % len(self.paths)
        sound = np.empty((CHANNELS, WINDOW), np.int16)
        with opened(self.paths[number], self.tidy) as file:
            for channel in range(CHANNELS):
                file.seek(2 * (channel * LENGTH + int(self.starts[index])))
                file.readinto(sound[channel])
        return self.transform(torch.from_numpy(sound).float() / 2000), number % 4


class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(CHANNELS, 16, 3, stride=2)
        self.out = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.head = nn.Linear(256, 4)

    def forward(self, spectra):
        return self.head(self.out(self.mix(spectra)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5009)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_recordings(folder)
        loader = DataLoader(
            Directions(folder, tidy=not args.without), BATCH, shuffle=True, drop_last=True
        )
        model = Finder()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for spectra, directions in loader:
                guess = model(spectra)
                loss = nn.functional.cross_entropy(guess, directions)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                right += (guess.argmax(1) == directions).sum().item()
            print(f"epoch {epoch}: loss {loss:.3f}, right {right / SAMPLES:.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
