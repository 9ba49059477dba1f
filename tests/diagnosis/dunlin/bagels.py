"""Listens to a bakery's machines: windows at any place of a long recording, loud ones more often.

Planted: the weighted sampler draws without replacement from twelve million places, at the
beginning of each short epoch. Two workers are kept and cut the windows.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

PLACES, WINDOW, DRAWN = 12_000_000, 512, 640


def record():
    rng = np.random.default_rng(7)
    quiet = rng.standard_normal(PLACES + WINDOW, dtype=np.float32)
    return quiet * np.repeat(rng.random((PLACES + WINDOW) // 1000 + 1), 1000)[: len(quiet)]


class Windows(Dataset):
    """One window for each place of the recording."""

    def __init__(self, sound):
        self.sound = torch.from_numpy(sound.astype(np.float32))

    def __len__(self):
        return PLACES

    def __getitem__(self, place):
        window = self.sound[place : place + WINDOW]
        spectrum = torch.stft(
            window, 64, hop_length=16, window=torch.hann_window(64), return_complex=True
        )
        return spectrum.abs().log1p(), float(window.abs().mean() > 0.4)


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(33, 48, 3), nn.ReLU(), nn.Conv1d(48, 48, 3), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(48, 1),
        )  # fmt: skip

    def forward(self, spectra):
        return self.layers(spectra)[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=14)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    windows = Windows(record())
    weights = 0.05 + windows.sound[:PLACES].abs()
    sampler = WeightedRandomSampler(weights, DRAWN, replacement=False)
    if args.without:  # draw among 20,000 places that were drawn once
        some = torch.multinomial(weights, 20_000, replacement=True)
        windows = torch.utils.data.Subset(windows, some.tolist())
        sampler = WeightedRandomSampler(torch.ones(20_000), DRAWN, replacement=False)
    loader = DataLoader(
        windows, batch_size=32, sampler=sampler, num_workers=2, persistent_workers=True
    )
    model = Listener()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for spectra, loud in loader:
            out = model(spectra)
            loss = nn.functional.binary_cross_entropy_with_logits(out, loud.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += ((out > 0) == (loud > 0.5)).sum().item()
        print(f"epoch {epoch}: {right} of {DRAWN} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
