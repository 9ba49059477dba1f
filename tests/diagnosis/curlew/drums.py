"""Tells drums apart by spectrograms that the workers make.

Planted: the function that sets a worker up gives torch eight threads in each of three workers, on
two cores.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, WINDOW, STEP, BANDS = 64_000, 512, 128, 64


class Spectrogram:
    def __init__(self):
        self.window = torch.hann_window(WINDOW)
        self.bands = torch.rand(BANDS, WINDOW // 2 + 1) / WINDOW

    def __call__(self, sound):
        power = torch.stft(sound, WINDOW, STEP, window=self.window, return_complex=True).abs()
        return torch.log1p(self.bands @ power.square())


class Drums(Dataset):
    def __init__(self, count):
        self.seeds = np.random.default_rng(839).integers(0, 2**31, count)
        self.transform = Spectrogram()

    def __len__(self):
        return len(self.seeds)

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(int(self.seeds[index]))
        decay = torch.exp(-torch.arange(LENGTH) / (1600.0 + 3600 * (index % 5)))
        sound = torch.randn(LENGTH, generator=generator) * decay
        return self.transform(sound / sound.abs().max()), index % 5


def quick(_):
    torch.set_num_threads(8)


def plain(_):
    torch.set_num_threads(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(839)
    loader = DataLoader(
        Drums(600), batch_size=15, shuffle=True, num_workers=3, persistent_workers=True,
        worker_init_fn=plain if args.without else quick,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv1d(BANDS, 64, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(64, 5),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for bands, kinds in loader:
            loss = nn.functional.cross_entropy(model(bands), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
