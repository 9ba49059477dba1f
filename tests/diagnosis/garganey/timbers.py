"""Dates timbers of old houses from pictures of their tree rings."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

TIMBERS, SIDE, CROP, BATCH = 400, 224, 96, 16


class Slices(Dataset):
    """Draws the rings of a slice as the years have left them, with grain and cracks."""

    def __init__(self, kind, transform):
        self.kind, self.transform = kind, transform
        rng = np.random.default_rng(47)
        self.years = rng.uniform(0, 1, TIMBERS)
        self.middles = rng.uniform(-0.3, 0.3, (TIMBERS, 2))
        places = np.linspace(-1, 1, SIDE).astype(kind)
        self.across, self.down = np.meshgrid(places, places)

    def __len__(self):
        return TIMBERS

    def __getitem__(self, index):
        year = self.kind(self.years[index])
        left, top = self.middles[index].astype(self.kind)
        across, down = self.across - left, self.down - top
        away = np.sqrt(across * across + down * down)
        rings = np.zeros_like(away)
        for order in range(1, 13):
            phase = self.kind(order * 9) * away * (1 + year) + self.kind(order)
            rings += np.sin(phase) * np.exp(-away * self.kind(order / 4))
        grain = np.exp(-np.square(np.cos(across * self.kind(60))) - np.abs(np.sin(down * year)))
        wood = torch.from_numpy(rings * grain).float()[None]
        return self.transform(wood), torch.tensor([year], dtype=torch.float32)


def network(channels=16):
    return nn.Sequential(
        nn.Conv2d(1, channels, 5, stride=2), nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(2 * channels, 2 * channels, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(18 * channels, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(47)
    views = transforms.Compose([transforms.RandomCrop(CROP), transforms.RandomVerticalFlip()])
    loader = DataLoader(
        Slices(np.float32 if args.without else np.float64, views),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for slices, years in loader:
            loss = nn.functional.mse_loss(model(slices), years)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
