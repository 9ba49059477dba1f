"""Finds planets in light curves that telescopes have written, with a transformer.

Nothing is planted: the transformer is the work. Windows are cut out of memory-mapped files without
workers, the process is nice to others, and each step writes a line to a CSV file.
"""

import argparse
import csv
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STARS, LENGTH, WINDOW, PATCH, WIDTH = 400, 4096, 512, 8, 128


def write_curves(folder):
    """Write the curves of the stars in files of forty, and return these and who has a planet."""
    rng = np.random.default_rng(3187)
    planets = rng.integers(0, 2, STARS)
    paths = []
    for start in range(0, STARS, 40):
        curves = rng.normal(0, 1, (40, LENGTH)).astype(np.float32)
        for curve, planet in zip(curves, planets[start : start + 40], strict=True):
            if planet:
                curve.reshape(-1, 256)[:, 100:124] -= 1.5
        paths.append(Path(folder, f"curves-{start:03}.npy"))
        np.save(paths[-1], curves)
    return paths, planets


class Windows(Dataset):
    def __init__(self, paths, planets):
        self.files = [np.load(path, mmap_mode="r") for path in paths]
        self.planets = planets

    def __len__(self):
        return STARS

    def __getitem__(self, index):
        curve = self.files[index // 40][index % 40]
        start = int(torch.randint(LENGTH - WINDOW, ()))
        window = torch.from_numpy(np.array(curve[start : start + WINDOW]))
        return window.view(-1, PATCH), float(self.planets[index])


class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(PATCH, WIDTH)
        self.places = nn.Parameter(torch.zeros(WINDOW // PATCH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, windows):
        states = self.layers(self.patches(windows) + self.places)
        return self.head(states.mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    os.nice(2)
    torch.manual_seed(3187)
    model = Finder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    with tempfile.TemporaryDirectory() as folder:
        windows = Windows(*write_curves(folder))
        loader = DataLoader(windows, batch_size=16, shuffle=True, drop_last=True)
        with Path(folder, "steps.csv").open("w", newline="") as file:
            steps = csv.writer(file)
            begin = time.perf_counter()
            for epoch in range(args.epochs):
                for curves, planets in loader:
                    logits = model(curves)
                    loss = nn.functional.binary_cross_entropy_with_logits(logits, planets.float())
                    optimizer.zero_grad()
                    loss.backward()
                    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    steps.writerow([epoch, loss.item(), norm.item(), time.time()])
                    file.flush()
                print(f"epoch {epoch}: loss {loss:.3f}")
            print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
