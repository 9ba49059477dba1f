"""Counts parasols on beaches in small pictures, which are read from a folder without workers.

Planted: a thread that keeps figures of the losses computes in Python without a pause, and each
read of a file, which lets go of the interpreter, has to wait until it gets it back.
"""

import argparse
import os
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BEACHES, SIDE, BATCH, STEP = 192, 32, 8, 0.02


class Figures(threading.Thread):
    """Quantiles of the losses, and how they change, for the panel of the team."""

    def __init__(self):
        super().__init__(daemon=True)
        self.losses, self.quantiles, self.ended = [1.0] * 64, {}, threading.Event()

    def smoothed(self, losses, weight):
        value, series = losses[0], []
        for loss in losses:
            value += weight * (loss - value)
            series.append(value)
        return series

    def run(self):
        while not self.ended.is_set():
            for weight in range(1, 100):
                series = sorted(self.smoothed(self.losses[-64:], weight / 100))
                self.quantiles[weight] = [series[len(series) * part // 10] for part in range(10)]


class Beaches(Dataset):
    """Pictures and counts in files of their own."""

    def __init__(self, folder):
        self.folder = folder
        rng = np.random.default_rng(107)
        for number in range(BEACHES):
            np.save(self.path(number, "picture"), rng.integers(0, 256, (3, SIDE, SIDE), np.uint8))
            np.save(self.path(number, "count"), np.int64(rng.integers(0, 40)))

    def path(self, number, part):
        return os.path.join(self.folder, f"{part}{number:04}.npy")

    def __len__(self):
        return BEACHES

    def __getitem__(self, index):
        picture = np.load(self.path(index, "picture"))
        count = np.load(self.path(index, "count"))
        picture = torch.from_numpy(picture).float() / 255
        if torch.rand(()) < 0.5:
            picture = picture.flip(2)
        return picture, torch.tensor(float(count))


def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 1)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(107)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(Beaches(folder), BATCH, shuffle=True)
        model = make_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        figures = Figures()
        if not args.without:
            figures.start()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, counts in loader:
                loss = nn.functional.poisson_nll_loss(model(pictures).squeeze(1), counts)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of a larger model on an accelerator
                figures.losses.append(loss.item())
            middle = figures.quantiles.get(50, [0] * 10)[5]
            print(f"epoch {epoch}: loss {loss:.3f}, middle {middle:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        figures.ended.set()


if __name__ == "__main__":
    main()
