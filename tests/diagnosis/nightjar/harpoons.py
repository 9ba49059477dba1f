"""Finds whales that harpoons once missed in scanned photographs of the sea.

Planted: of six transforms, the median filter, written in C, looks at 17 by 17 pixels around each,
to take away specks of dust that are three pixels wide.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SCANS, SIDE, BATCH, STEP = 320, 200, 8, 0.12


class Dustless:
    def __init__(self, size):
        self.filter = ImageFilter.MedianFilter(size)

    def __call__(self, scan):
        return scan.filter(self.filter)


class Waves:
    """Shifts rows to and fro, as waves do."""

    def __init__(self, height=3):
        self.height = height

    def __call__(self, scan):
        pixels = np.asarray(scan)
        phase = float(torch.rand(())) * 6.3
        for y in range(0, len(pixels), 8):
            shift = int(self.height * np.sin(y / 20 + phase))
            pixels = np.concatenate(
                [pixels[:y], np.roll(pixels[y : y + 8], shift, axis=1), pixels[y + 8 :]]
            )
        return Image.fromarray(pixels)


class Photographs(Dataset):
    def __init__(self, transform):
        rng = np.random.default_rng(307)
        self.scans = [
            Image.fromarray(rng.integers(60, 140, (SIDE, SIDE), dtype=np.uint8)) for _ in range(32)
        ]
        self.transform = transform

    def __len__(self):
        return SCANS

    def __getitem__(self, number):
        return self.transform(self.scans[number % 32]), float(number % 2)


def train(args):
    transform = transforms.Compose(
        [
            ImageOps.autocontrast,
            Dustless(3 if args.without else 17),
            Waves(),
            transforms.RandomRotation(10, interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.RandomResizedCrop(128, scale=(0.5, 1.0)),
            transforms.ToTensor(),
        ]
    )
    loader = DataLoader(Photographs(transform), BATCH, shuffle=True, num_workers=3)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=4), nn.LeakyReLU(), nn.Flatten(), nn.Linear(8 * 31 * 31, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for scans, whale in loader:
            loss = nn.functional.soft_margin_loss(model(scans).squeeze(1), 2 * whale - 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the detector's pyramid, on an accelerator
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(307)
    torch.set_num_threads(1)
    train(args)


if __name__ == "__main__":
    main()
