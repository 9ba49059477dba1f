"""Warns of hailstones an hour ahead, from packed frames of a weather radar."""

import argparse
import gzip
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

FRAMES, SIDE, PAST, BATCH = 600, 128, 4, 8
SIZE = SIDE * SIDE


def write(path):
    rng = np.random.default_rng(10)
    cells = rng.gamma(1.2, 8, (FRAMES + 40, SIDE, SIDE)).astype(np.uint8)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(cells[:FRAMES].tobytes())


class Radar(Dataset):
    """Some frames of the past, and whether there was hail an hour later."""

    def __init__(self, path, transform, unpacked):
        self.hail = np.random.default_rng(11).random(FRAMES) < 0.3
        self.file = gzip.GzipFile(path)
        self.frames = self.file.read() if unpacked else None
        self.transform = transform

    def __len__(self):
        return FRAMES - PAST

    def past(self, first):
        if self.frames is not None:
            return self.frames[first * SIZE : (first + PAST) * SIZE]
        self.file.seek(first * SIZE)
        return self.file.read(PAST * SIZE)

    def __getitem__(self, first):
        raw = np.frombuffer(self.past(first), np.uint8).reshape(PAST, SIDE, SIDE)
        frames = torch.from_numpy(raw.astype(np.float32) / 64)
        return self.transform(frames), float(self.hail[first + PAST])


class Hail(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(PAST, channels, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveMaxPool2d(4), nn.Flatten(),
        )  # fmt: skip
        self.last = nn.Linear(32 * channels, 1)

    def forward(self, frames):
        return self.last(self.body(frames))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(10)
    views = transforms.Compose(
        [
            transforms.RandomCrop(112),
            transforms.RandomHorizontalFlip(),
            transforms.Normalize([0.15] * PAST, [0.14] * PAST),
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "radar.gz"
        write(path)
        loader = DataLoader(Radar(path, views, args.without), BATCH, shuffle=True)
        model = Hail()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for frames, hail in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(frames), hail.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
