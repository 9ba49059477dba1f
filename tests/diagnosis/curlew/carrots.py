"""Grades carrots by their surface; each worker has a thread that draws surfaces ahead.

Planted: the threads never pause, though more surfaces are ready than the training can use, and
have the cores that the training step needs.
"""

import argparse
import collections
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, KEPT = 96, 40


class Drawer(threading.Thread):
    """Keeps the latest surfaces that it has drawn."""

    def __init__(self, pauses):
        super().__init__(daemon=True)
        self.pauses, self.ready = pauses, collections.deque(maxlen=KEPT)
        self.rng = np.random.default_rng()

    def draw(self):
        noise = np.fft.rfft2(self.rng.standard_normal((4, SIDE, SIDE)))
        rough = self.rng.integers(2, 12)
        noise[:, rough:-rough] = 0
        noise[:, :, rough:] = 0
        surface = np.fft.irfft2(noise).mean(0)
        return (surface / surface.std()).astype(np.float32), int(rough > 6)

    def run(self):
        while True:
            if self.pauses and len(self.ready) == KEPT:
                time.sleep(0.02)
                continue
            self.ready.append(self.draw())


class Carrots(Dataset):
    def __init__(self, count, pauses):
        self.count, self.pauses, self.drawer = count, pauses, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.drawer is None:
            self.drawer = Drawer(self.pauses)
            self.drawer.start()
        try:
            surface, coarse = self.drawer.ready.pop()
        except IndexError:
            surface, coarse = self.drawer.draw()
        return torch.from_numpy(surface)[None], coarse


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(743)
    loader = DataLoader(
        Carrots(640, args.without), batch_size=16, num_workers=3, persistent_workers=True,
        multiprocessing_context="fork",
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for surfaces, coarse in loader:
            loss = nn.functional.cross_entropy(model(surfaces), coarse)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
