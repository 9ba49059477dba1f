"""Sorts photographs of jackets for a shop, from a folder with one folder for each kind.

Planted: specks are removed by a median filter from each photograph as it was taken, before it is
cut out and made small.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

SIDE, KINDS, EACH = 320, 4, 80


def write_photographs(folder):
    rng = np.random.default_rng(701)
    for kind in range(KINDS):
        path = Path(folder, f"kind{kind}")
        path.mkdir()
        for number in range(EACH):
            coarse = rng.integers(0, 256, (10, 10, 3), np.uint8)
            picture = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            picture.save(path / f"{number}.jpg", quality=90)


class RemoveSpecks:
    """Replaces each pixel by the middle one of its neighbourhood."""

    def __init__(self, size):
        self.size = size

    def __call__(self, picture):
        return picture.filter(ImageFilter.MedianFilter(self.size))


def network():
    return nn.Sequential(
        nn.Conv2d(3, 12, 5, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, KINDS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(701)
    cut = transforms.RandomResizedCrop(64, scale=(0.5, 1.0))
    specks = RemoveSpecks(3)
    transform = transforms.Compose(
        [
            *([cut] if args.without else [specks, cut]),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.1, 0.1),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        write_photographs(folder)
        loader = DataLoader(
            ImageFolder(folder, transform), batch_size=20, shuffle=True, num_workers=2,
            persistent_workers=True,
        )  # fmt: skip
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, kinds in loader:
                loss = nn.functional.cross_entropy(model(pictures), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
