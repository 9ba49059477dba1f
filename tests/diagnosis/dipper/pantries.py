"""Names what stands on the shelf of a pantry, from photos that people take with their phone."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHELVES, PHOTOS, SIDE, GOODS, BATCH = 240, 30, 112, 9, 16


def photograph(folder):
    rng = np.random.default_rng(71)
    for photo in range(PHOTOS):
        shelf = rng.integers(0, 256, (90, 120, 3), dtype=np.uint8)
        picture = Image.fromarray(shelf).resize((2400, 1800), Image.Resampling.BICUBIC)
        picture.save(folder / f"shelf-{photo:03d}.jpg", quality=90)


class Shelves(Dataset):
    def __init__(self, folder, small):
        self.names = sorted(folder.glob("*.jpg"))
        self.small = small

    def __len__(self):
        return SHELVES

    def photo(self, name):
        with Image.open(name) as photo:
            if self.small:
                photo.draft("RGB", (2 * SIDE, 2 * SIDE))
            return photo.convert("RGB").resize((SIDE, SIDE))

    def __getitem__(self, index):
        photo = self.photo(self.names[index % PHOTOS])
        for change in ImageEnhance.Color, ImageEnhance.Contrast, ImageEnhance.Sharpness:
            photo = change(photo).enhance(0.7 + 0.6 * torch.rand(()).item())
        pixels = np.array(photo, dtype=np.float32) / 127.5 - 1
        return torch.from_numpy(pixels).permute(2, 0, 1), index % GOODS


def network(channels=16):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * channels, GOODS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(71)
    with tempfile.TemporaryDirectory() as folder:
        photograph(Path(folder))
        loader = DataLoader(
            Shelves(Path(folder), small=args.without),
            BATCH,
            shuffle=True,
            num_workers=1,
            persistent_workers=True,
            multiprocessing_context="spawn",
        )
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for photos, goods in loader:
                loss = nn.functional.cross_entropy(model(photos), goods)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
