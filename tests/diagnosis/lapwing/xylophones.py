"""Tells notes of xylophones apart with convolutions on the processor.

Nothing planted: the convolutions are the work; one worker opens a file for each note, adds noise to
it and makes a spectrogram, well ahead of them.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, NOTES, SOUNDS, BATCH = 8000, 8, 160, 8


def record(folder):
    rng = np.random.default_rng(5197)
    moments = np.arange(RATE) / RATE
    for number in range(SOUNDS):
        pitch = 262 * 2 ** (number % NOTES / 12)
        sound = np.exp(-6 * moments) * np.sin(2 * np.pi * pitch * moments)
        sound += rng.normal(0, 0.02, RATE)
        np.savez(Path(folder, f"{number:04}.npz"), sound=sound.astype(np.float32), rate=RATE)


class Sounds(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.npz"))
        self.window = torch.hann_window(256)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with np.load(self.paths[index]) as file:
            sound = torch.from_numpy(file["sound"])
        sound = sound + 0.01 * torch.randn(len(sound))
        parts = torch.stft(sound, 256, 64, window=self.window, return_complex=True)
        return torch.log1p(parts.abs())[None], index % NOTES


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.out = nn.Linear(2 * width, NOTES)

    def forward(self, spectrograms):
        return self.out(self.features(spectrograms).mean((2, 3)))


def train(loader, net, epochs):
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(epochs):
        right = 0
        for spectrograms, notes in loader:
            scores = net(spectrograms)
            loss = nn.functional.cross_entropy(scores, notes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == notes).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, right {right / SOUNDS:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(5197)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        record(folder)
        loader = DataLoader(
            Sounds(folder), BATCH, shuffle=True, num_workers=1, persistent_workers=True
        )
        net = Net()
        begin = time.perf_counter()
        train(loader, net, args.epochs)
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
