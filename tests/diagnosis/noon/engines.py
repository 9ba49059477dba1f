"""Vibrations of engines, for what will break; last year's recordings are packed meanwhile."""

import argparse
import contextlib
import lzma
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Vibrations(Dataset):
    def __init__(self, count=1600, length=8192):
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        signal = rng.normal(size=self.length).cumsum()
        signal -= np.convolve(signal, np.ones(65) / 65, "same")
        frames = np.lib.stride_tricks.sliding_window_view(signal, 512)[::64]
        spectra = np.log1p(np.abs(np.fft.rfft(frames * np.hanning(512))))
        return torch.from_numpy(spectra.astype(np.float32)), index % 4


def pack_year(number):
    """Compresses recordings, month after month, until it is ended."""
    recording = np.random.default_rng(number).integers(0, 40, 2_000_000, dtype=np.uint8).tobytes()
    while True:
        lzma.compress(recording, preset=6)


@contextlib.contextmanager
def packers(count):
    others = [
        multiprocessing.Process(target=pack_year, args=(n,), daemon=True) for n in range(count)
    ]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(15)
    loader = DataLoader(Vibrations(), batch_size=32, shuffle=True, num_workers=2)
    model = nn.Sequential(
        nn.Conv1d(121, 64, 5),
        nn.ReLU(),
        nn.Conv1d(64, 64, 5, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(256, 4),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with packers(0 if args.without else 3):
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for spectra, parts in loader:
                loss = nn.functional.cross_entropy(model(spectra), parts)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
