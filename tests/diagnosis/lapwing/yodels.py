"""Finds the yodels in recordings of mountain choirs by their spectrograms.

Planted: the front end sets the number of torch's threads in each of the workers, which torch had
set to one there, to eight, and the threads of three workers fight for two cores.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, BANDS, BATCH, STEP = 16000, 6, 64, 8, 0.03
RECORDINGS = 120


class FrontEnd:
    """Makes logarithmic spectrograms in bands."""

    def __init__(self, threads, window=512, hop=128):
        torch.set_num_threads(threads)
        self.window, self.hop = torch.hann_window(window), hop
        edges = np.geomspace(2, window // 2, BANDS + 2)
        places = np.arange(window // 2 + 1)[:, None]
        up = (places - edges[:-2]) / (edges[1:-1] - edges[:-2])
        down = (edges[2:] - places) / (edges[2:] - edges[1:-1])
        self.bands = torch.from_numpy(np.clip(np.minimum(up, down), 0, None)).float()

    def __call__(self, sound):
        parts = torch.stft(
            sound, len(self.window), self.hop, window=self.window, return_complex=True
        )
        power = parts.abs().square()
        floor = power.clone()
        for _ in range(25):  # a floor that follows what lasts
            floor = torch.minimum(floor * 1.03, power)
            floor = floor + 0.1 * (power.roll(1, 1) - floor).clamp_max(0.5)
        features = torch.log1p((power - floor).clamp_min(0).T @ self.bands)
        return (features - features.mean()) / (features.std() + 1e-5)


class Recordings(Dataset):
    def __init__(self, threads):
        rng = np.random.default_rng(5011)
        self.sounds = rng.standard_normal((12, RATE * SECONDS), dtype=np.float32)
        self.threads = threads
        self.front_end = None

    def __len__(self):
        return RECORDINGS

    def __getitem__(self, index):
        if self.front_end is None:
            self.front_end = FrontEnd(self.threads)
        sound = torch.from_numpy(self.sounds[index % len(self.sounds)])
        sound = torch.roll(sound, index * 511) + 0.01 * torch.randn(len(sound))
        return self.front_end(sound), float(index % 2)


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(BANDS, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, features):
        return self.layers(features.mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(5011)
    loader = DataLoader(
        Recordings(threads=1 if args.without else 8),
        BATCH,
        shuffle=True,
        num_workers=3,
        persistent_workers=True,
    )
    model = Listener()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for features, yodels in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(features), yodels.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of the accelerator
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
