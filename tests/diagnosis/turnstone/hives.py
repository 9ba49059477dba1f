"""Hears from the hum of hives whether bees will swarm, on an accelerator (a pause here).

Nothing is planted: the accelerator's step sets the pace. Three workers make spectra ahead of it,
one recording in thirty is read anew from a slow card, and the model is saved after each epoch.
"""

import argparse
import io
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

LENGTH, WINDOW, STEP = 8192, 256, 0.11


class Hums(Dataset):
    def __init__(self, count):
        self.pitches = np.random.default_rng(1087).uniform(0.1, 0.6, count)

    def __len__(self):
        return len(self.pitches)

    def recording(self, index):
        if index % 30 == 7:
            time.sleep(0.06)
        noise = np.random.default_rng(index).standard_normal(LENGTH)
        return np.sin(np.arange(LENGTH) * self.pitches[index]) + 0.5 * noise

    def __getitem__(self, index):
        hum = self.recording(index)
        parts = np.lib.stride_tricks.sliding_window_view(hum, WINDOW)[:: WINDOW // 2]
        spectrum = np.abs(np.fft.rfft(parts * np.hanning(WINDOW)))
        bands = torch.from_numpy(np.log1p(spectrum).astype(np.float32))
        return bands, float(self.pitches[index] > 0.4)


class Accelerator:
    """Trains for some time with each batch, and needs no core."""

    def __init__(self):
        self.weights = torch.zeros(WINDOW // 2 + 1)

    def train(self, bands, swarms):
        time.sleep(STEP)
        means = bands.mean(1)
        error = swarms.float() - means @ self.weights
        self.weights += 0.001 * error @ means / len(swarms)
        return error.square().mean().item()

    def save(self):
        file = io.BytesIO()
        torch.save(self.weights, file)
        return len(file.getvalue())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1087)
    loader = DataLoader(
        Hums(600), batch_size=12, shuffle=True, num_workers=3, prefetch_factor=3,
        persistent_workers=True,
    )  # fmt: skip
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for bands, swarms in loader:
            error = accelerator.train(bands, swarms)
        print(f"epoch {epoch}: error {error:.3f}, saved {accelerator.save()} bytes")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
