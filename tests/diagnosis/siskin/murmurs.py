"""Hears murmurs of the heart in recordings with four stethoscopes at once."""

import argparse
import time

import numpy as np
import torch
from scipy import signal
from torch import nn
from torch.utils.data import DataLoader, Dataset

PATIENTS, PLACES, SECONDS, RECORDED, KEPT, FINE = 224, 4, 10, 4000, 500, 16_000
BAND, BATCH = (25, 200), 16


class Recordings(Dataset):
    """Recordings within the band of murmurs, at the rate that the network is trained on."""

    def __init__(self, seed, rate):
        rng = np.random.default_rng(seed)
        beat = np.sin(np.arange(SECONDS * RECORDED) * 2 * np.pi * 40 / RECORDED)
        noise = rng.normal(0, 0.3, (32, PLACES, SECONDS * RECORDED))
        self.waves = ((beat + noise) * 8000).astype(np.int16)
        self.rate = rate
        self.band = signal.butter(4, BAND, "bandpass", fs=rate, output="sos")

    def __len__(self):
        return PATIENTS

    def resampled(self, waves, old, new):
        if old == new:
            return waves
        return signal.resample_poly(waves, new // np.gcd(old, new), old // np.gcd(old, new), axis=1)

    def __getitem__(self, index):
        waves = self.waves[index % len(self.waves)] / 32768
        waves = self.resampled(waves, RECORDED, self.rate)
        waves = signal.sosfiltfilt(self.band, waves, axis=1)
        waves = self.resampled(waves, self.rate, KEPT)
        waves = waves * np.random.uniform(0.8, 1.2, (PLACES, 1))
        waves = (waves - waves.mean(1, keepdims=True)) / (waves.std(1, keepdims=True) + 1e-6)
        return torch.from_numpy(waves.astype(np.float32)), np.float32(index % 2)


class Hearing(nn.Module):
    def __init__(self):
        super().__init__()
        layers, before = [], PLACES
        for channels in (24, 32, 48):
            layers += [
                nn.Conv1d(before, channels, 9, stride=4, padding=4),
                nn.BatchNorm1d(channels),
                nn.ReLU(),
            ]
            before = channels
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(4), nn.Flatten())
        self.head = nn.Linear(4 * before, 1)

    def forward(self, waves):
        return self.head(self.layers(waves))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(90)
    recordings = Recordings(90, KEPT if args.without else FINE)
    loader = DataLoader(recordings, BATCH, shuffle=True)
    model = Hearing()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for waves, murmurs in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(waves), murmurs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
