"""Finds potholes in the height profiles that a van's lasers took of roads."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

LASERS, PLACES, LENGTH, BATCH = 48, 200_000, 192, 16


def write(path):
    """Heights in tenths of a millimetre, place by place along the road."""
    rng = np.random.default_rng(45)
    heights = rng.integers(-30, 30, (PLACES, LASERS), np.int16)
    for place in rng.integers(0, PLACES - 40, 1400):
        laser = rng.integers(0, LASERS - 8)
        heights[place : place + 40, laser : laser + 8] -= 300
    np.save(path, heights)


class Smoothed:
    """Takes the slow waves of the road out of a profile."""

    def __call__(self, profile):
        waves = torch.fft.rfft(profile, dim=1)
        waves[:, :4] = 0
        return torch.fft.irfft(waves, LENGTH, dim=1)


class Profiles(Dataset):
    def __init__(self, path, samples, transform, narrow):
        self.heights = np.load(path, mmap_mode="r")
        self.samples, self.transform, self.narrow = samples, transform, narrow

    def __len__(self):
        return self.samples

    def profile(self, first):
        if self.narrow:
            return self.heights[first : first + LENGTH].astype(np.float32)
        return self.heights.astype(np.float32)[first : first + LENGTH]

    def __getitem__(self, index):
        first = index * 7919 % (PLACES - LENGTH)
        profile = torch.from_numpy(self.profile(first).T / 100)[None]
        holes = (profile < -1).float().mean()
        return self.transform(profile), holes


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(45)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "heights.npy"
        write(path)
        transform = v2.Compose(
            [
                v2.RandomAffine(2, (0.05, 0.05), interpolation=v2.InterpolationMode.BILINEAR),
                v2.GaussianBlur(5),
                v2.Lambda(Smoothed()),
                v2.RandomHorizontalFlip(),
            ]
        )
        loader = DataLoader(
            Profiles(path, 800, transform, args.without),
            BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for profiles, holes in loader:
                loss = nn.functional.mse_loss(model(profiles)[:, 0], holes)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
