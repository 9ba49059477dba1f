"""Songs of whales: the bank of mel filters is built anew for each clip."""

import argparse
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, BANDS, POINTS = 8000, 32, 512


def mel(frequency):
    return 2595 * math.log10(1 + frequency / 700)


def filter_bank():
    edges = [mel(RATE / 2) * i / (BANDS + 1) for i in range(BANDS + 2)]
    bank = torch.zeros(BANDS, POINTS // 2 + 1)
    for band in range(BANDS):
        low, centre, high = edges[band : band + 3]
        for point in range(POINTS // 2 + 1):
            pitch = mel(point * RATE / POINTS)
            height = min((pitch - low) / (centre - low), (high - pitch) / (high - centre))
            if height > 0:
                bank[band, point] = height
    return bank


class Songs(Dataset):
    def __init__(self, keep, count=480):
        generator = torch.Generator().manual_seed(17)
        self.clips = torch.randn(count, RATE, generator=generator)
        self.window = torch.hann_window(POINTS)
        self.bank = filter_bank() if keep else None

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        bank = filter_bank() if self.bank is None else self.bank
        waves = torch.stft(
            self.clips[index], POINTS, POINTS // 2, window=self.window, return_complex=True
        )
        return (bank @ waves.abs().square() + 1e-6).log(), index % 4


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    loader = DataLoader(Songs(keep=args.without), batch_size=16, shuffle=True)
    model = nn.Sequential(
        nn.Conv1d(BANDS, 64, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 4)
    )
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for _ in range(args.epochs):
        for songs, whales in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(songs), whales).backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
