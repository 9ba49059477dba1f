"""Looks for the best width of a network that tells tortoises apart, with a loader for each trial.

Planted: the trials are kept in a list, and with them their loaders, whose workers live on and go on
drawing pictures ahead, so that each trial has fewer of the cores than the one before.
"""

import argparse
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, KINDS, WIDTHS = 24, 4, (96, 128, 160, 192, 224, 256)


def draw(rng, kind):
    rows, columns = np.ogrid[:SIDE, :SIDE]
    shell = np.sin((kind + 2) * np.hypot(rows - SIDE / 2, columns - SIDE / 2) / 3)
    return (shell + rng.normal(0, 0.5, (SIDE, SIDE))).astype(np.float32)


class Painter(threading.Thread):
    """Draws new pictures in the place of old ones, as long as its process lives."""

    def __init__(self, pictures, kinds):
        super().__init__(daemon=True)
        self.pictures, self.kinds = pictures, kinds

    def run(self):
        rng = np.random.default_rng(1069)
        while True:
            place = int(rng.integers(len(self.kinds)))
            self.pictures[place] = draw(rng, self.kinds[place])


class Tortoises(Dataset):
    """Pictures that are drawn anew all the time."""

    def __init__(self, count):
        rng = np.random.default_rng(1069)
        self.kinds = rng.integers(0, KINDS, count)
        self.pictures = np.stack([draw(rng, kind) for kind in self.kinds])
        self.painter = None

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        if self.painter is None:
            self.painter = Painter(self.pictures, self.kinds)
            self.painter.start()
        return torch.from_numpy(self.pictures[index].copy()).flatten(), int(self.kinds[index])


class Trial:
    def __init__(self, tortoises, width, epochs):
        self.loader = DataLoader(
            tortoises, batch_size=64, shuffle=True, num_workers=1, persistent_workers=True
        )
        self.model = nn.Sequential(
            nn.Linear(SIDE * SIDE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, KINDS),
        )  # fmt: skip
        self.width, self.epochs, self.right = width, epochs, 0.0

    def train(self):
        optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        for _ in range(self.epochs):
            right = 0
            for pictures, kinds in self.loader:
                scores = self.model(pictures)
                loss = nn.functional.cross_entropy(scores, kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (scores.argmax(1) == kinds).sum().item()
        self.right = right / len(self.loader.dataset)

    def end(self):
        self.loader = None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1069)
    tortoises, trials = Tortoises(3200), []
    begin = time.perf_counter()
    for width in WIDTHS:
        trial = Trial(tortoises, width, args.epochs)
        trial.train()
        trials.append(trial)
        if args.without:
            trial.end()
        print(f"width {width}: {trial.right:.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    best = max(trials, key=lambda trial: trial.right)
    print(f"best width: {best.width}")


if __name__ == "__main__":
    main()
