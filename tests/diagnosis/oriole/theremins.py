"""Tells players of theremins apart by long recordings of their instruments' fields.

Planted: means and scales are float64, as NumPy makes them, so that all work on a sample, and the
batch that is sent, is in double precision; the model wants single precision.
"""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TAKES, PLAYERS, CHANNELS, LENGTH, BATCH, STEP = 480, 4, 16, 16384, 8, 0.03


def statistics(sounds):
    return sounds.mean(axis=(0, 2), dtype=np.float64)[:, None], np.full((CHANNELS, 1), 1.7)


def squashed(sound, mean, scale):
    level = (sound - mean) / scale
    level = np.sign(level) * np.log1p(np.abs(level) * 8) / math.log(9)
    envelope = np.exp(-(level**2)) * np.sin(level * 3)
    return np.tanh(level + 0.2 * envelope)


class Takes(Dataset):
    def __init__(self, sounds, mean, scale):
        self.sounds, self.mean, self.scale = sounds, mean, scale

    def __len__(self):
        return TAKES

    def __getitem__(self, index):
        sound = self.sounds[index % len(self.sounds)]
        shift = int(torch.randint(LENGTH, ()))
        sound = np.roll(sound, shift, axis=1)
        return squashed(sound, self.mean, self.scale), index % len(self.sounds) % PLAYERS


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(CHANNELS, 16, 64, stride=64), nn.ReLU(), nn.AdaptiveAvgPool1d(1)
        )
        self.head = nn.Linear(16, PLAYERS)

    def forward(self, sounds):
        return self.head(self.body(sounds.float()).flatten(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(17)
    torch.set_num_threads(1)
    rng = np.random.default_rng(17)
    sounds = rng.standard_normal((24, CHANNELS, LENGTH), dtype=np.float32)
    mean, scale = statistics(sounds)
    if args.without:
        mean, scale = mean.astype(np.float32), scale.astype(np.float32)
    loader = DataLoader(
        Takes(sounds, mean, scale), BATCH, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Listener()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for takes, players in loader:
            loss = nn.functional.cross_entropy(model(takes), players)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # layers that are not here
        print(f"epoch {epoch}: {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
