"""Counts the breaths of a player of the didgeridoo, from spectrograms of what was recorded."""

import argparse
import hashlib
import time

import numpy as np
import torch
from scipy import signal
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

TAKES, RATE, SECONDS, BATCH, STEP = 448, 8000, 3, 16, 0.15


class Takes(Dataset):
    """Takes in memory; each becomes a spectrogram and has a name of its own for the journal."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        times = np.arange(RATE * SECONDS) / RATE
        self.waves = [
            (np.sin(2 * np.pi * 70 * times) + rng.normal(0, 0.2, times.shape)).astype(np.float32)
            for _ in range(30)
        ]
        self.change = transforms.Compose(
            [transforms.Normalize([-8.0], [4.0]), transforms.RandomErasing(0.5, (0.02, 0.1))]
        )

    def __len__(self):
        return TAKES

    def __getitem__(self, index):
        wave = self.waves[index % len(self.waves)] * np.float32(np.random.uniform(0.7, 1.3))
        name = hashlib.sha1(wave.tobytes()).hexdigest()[:8]
        _, _, power = signal.spectrogram(wave, RATE, nperseg=256, noverlap=64)
        picture = torch.from_numpy(np.log(power + 1e-7, dtype=np.float32))[None]
        return self.change(picture), np.float32(index % 6), name


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(75)
    torch.set_num_threads(1)
    loader = DataLoader(
        Takes(75),
        BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    worst = {}
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, breaths, names in loader:
            off = (model(pictures)[:, 0] - breaths).abs()
            loss = off.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
            worst.update(zip(names, off.tolist(), strict=True))
        first = max(worst, key=worst.get)
        print(f"epoch {epoch}: loss {loss:.3f}, worst {first} by {worst[first]:.1f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
