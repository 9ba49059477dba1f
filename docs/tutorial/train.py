"""Trains a small network on photos: a plain PyTorch script, for docs/tutorial.md.

python train.py --photos photos --epochs 3

The first run makes the photos: 480 JPEGs of 1280 x 960, 90 MB.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

CLASSES = ["meadow", "river", "street"]


def make_photos(folder: Path, count: int) -> None:
    """Write random photos, each in the folder of its class, with some grain as a camera has it."""
    draw = np.random.default_rng(0)
    for number in range(count):
        file = folder / CLASSES[number % len(CLASSES)] / f"{number:04}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        shapes = Image.fromarray(draw.integers(0, 256, (12, 16, 3), np.uint8))
        photo = np.asarray(shapes.resize((1280, 960), Image.Resampling.BICUBIC), np.int16)
        grain = draw.integers(-12, 13, photo.shape[:2], np.int16)
        Image.fromarray((photo + grain[..., None]).clip(0, 255).astype(np.uint8)).save(file)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network on photos.")
    parser.add_argument("--photos", type=Path, default=Path("photos"))
    parser.add_argument("--count", type=int, default=480, help="how many photos to make")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    if not args.photos.exists():
        make_photos(args.photos, args.count)

    torch.manual_seed(0)
    photos = ImageFolder(
        str(args.photos),
        transforms.Compose(
            [
                transforms.Resize(144),
                transforms.RandomCrop(128),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25]),
            ]
        ),
    )
    loader = DataLoader(photos, batch_size=16, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, len(CLASSES)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(args.epochs):
        started = time.perf_counter()
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch}: {len(photos) / seconds:.0f} images/s, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
