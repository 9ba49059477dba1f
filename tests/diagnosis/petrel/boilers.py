"""Listens to boilers: four workers filter recordings with torch before a small network sees them.

Planted: each worker sets eight threads for torch, as on another machine, beyond the cores.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLES, BANDS = 16_000, 32


def use_threads(count):
    def set_up(_):
        torch.set_num_threads(count)

    return set_up


class FilterBank(nn.Module):
    """The loudness in some bands over time, in decibels."""

    def __init__(self, width=128):
        super().__init__()
        generator = torch.Generator().manual_seed(317)
        bank = torch.randn(BANDS, 1, width, generator=generator) * torch.hann_window(width)
        self.register_buffer("bank", bank)

    def forward(self, sound):
        bands = nn.functional.conv1d(sound[None, None], self.bank, stride=8)
        loud = bands.square().clamp(min=1e-8).log10() * 10
        loud = (loud - loud.mean(2, keepdim=True)) / loud.std(2, keepdim=True)
        return nn.functional.avg_pool1d(loud, 16)[0]


class Boilers(Dataset):
    def __init__(self, transform, count):
        generator = torch.Generator().manual_seed(318)
        self.sounds = torch.randn(24, SAMPLES, generator=generator)
        self.transform, self.count = transform, count

    def __len__(self):
        return self.count

    @torch.no_grad()
    def __getitem__(self, index):
        sound = self.sounds[index % len(self.sounds)]
        return self.transform(sound * (1 + index % 5)), index % 4


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(317)
    loader = DataLoader(
        Boilers(FilterBank(), 640),
        batch_size=16,
        shuffle=True,
        num_workers=4,
        worker_init_fn=use_threads(1 if args.without else 8),
        persistent_workers=True,
    )
    model = nn.Sequential(
        nn.Conv1d(BANDS, 48, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(48, 4),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for bands, states in loader:
            loss = nn.functional.cross_entropy(model(bands), states)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
