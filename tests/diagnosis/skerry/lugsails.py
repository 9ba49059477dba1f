"""Finds weak spots in scanned sailcloth; a sample is one slice of a compressed volume.

Planted: a cache keeps four volumes for slices that are drawn from twenty, so that nearly each slice
has its whole volume decompressed again.
"""

import argparse
import gzip
import tempfile
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision.transforms import v2

DEPTH, SIDE = 64, 160


def scan(folder, count=20):
    """Write volumes as gzip files and return their paths."""
    rng = np.random.default_rng(11)
    weave = np.add.outer(np.arange(SIDE) % 9, np.arange(SIDE) % 7).astype(np.uint8)
    paths = []
    for number in range(count):
        noise = rng.integers(0, 4, (DEPTH, SIDE, SIDE), dtype=np.uint8)
        path = Path(folder, f"sail{number:02d}.raw.gz")
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write((noise + weave * 12).tobytes())
        paths.append(path)
    return paths


def unpack(path):
    """Return a volume: bytes of shape (DEPTH, SIDE, SIDE)."""
    with gzip.open(path, "rb") as file:
        return np.frombuffer(file.read(), np.uint8).reshape(DEPTH, SIDE, SIDE)


class TakeSlice(nn.Module):
    """Turns the path of a volume and a height into a picture."""

    def __init__(self, volumes):
        super().__init__()
        self.volumes = volumes
        self.cached = None

    def forward(self, place):
        if self.cached is None:
            self.cached = lru_cache(maxsize=self.volumes)(unpack)
        path, height = place
        return torch.from_numpy(self.cached(path)[height].copy())[None]


class Sails(Dataset):
    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return len(self.paths) * DEPTH

    def __getitem__(self, index):
        volume, height = divmod(index, DEPTH)
        picture = self.transform((self.paths[volume], height))
        return picture, (picture > 1.0).float().mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(11)
    with tempfile.TemporaryDirectory() as folder:
        transform = v2.Compose([
            TakeSlice(20 if args.without else 4), v2.RandomVerticalFlip(), v2.RandomCrop(128),
            v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.2], [0.2]),
        ])  # fmt: skip
        sails = Sails(scan(folder), transform)
        sampler = RandomSampler(sails, num_samples=240)
        loader = DataLoader(
            sails, batch_size=12, sampler=sampler, num_workers=2, persistent_workers=True
        )
        model = nn.Sequential(
            nn.Conv2d(1, 12, 5, 3), nn.GELU(), nn.Conv2d(12, 24, 3, 2), nn.GELU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 1),
        )  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            losses = []
            for pictures, shares in loader:
                loss = nn.functional.mse_loss(model(pictures).squeeze(1), shares)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
