"""Classifies small photographs, with a pipeline of ten transforms of torchvision.

Planted: one transform in the middle of the ten takes the median of the 9 x 9 neighbours of each
pixel, which costs far more than all others together.
"""

import argparse
import logging
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split
from torchvision import transforms

log = logging.getLogger("photographs")


@dataclass
class Config:
    epochs: int
    soften: bool
    pictures: int = 288
    side: int = 112
    classes: int = 4
    batch: int = 16
    rate: float = 0.02


def write_pictures(folder, config):
    rng = np.random.default_rng(4001)
    for number in range(config.pictures):
        small = rng.integers(0, 256, (14, 14, 3), dtype=np.uint8)
        small[..., number % 3] //= 2 + number % config.classes
        picture = Image.fromarray(small).resize((config.side, config.side))
        picture.save(Path(folder, f"{number:04}-{number % config.classes}.jpg"), quality=88)


class Soften:
    """Takes specks of dust away, as the old cameras had them."""

    def __init__(self, size=9):
        self.filter = ImageFilter.MedianFilter(size)

    def __call__(self, picture):
        return picture.filter(self.filter)


class Photographs(Dataset):
    def __init__(self, folder, transform):
        self.paths = sorted(Path(folder).glob("*.jpg"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        picture = Image.open(path).convert("RGB")
        return self.transform(picture), int(path.stem[-1])


def pipeline(config):
    steps = [
        transforms.Resize(104),
        transforms.RandomCrop(96),
        transforms.RandomHorizontalFlip(),
        transforms.RandomVerticalFlip(0.1),
        transforms.ColorJitter(0.2, 0.2),
        transforms.RandomGrayscale(0.1),
        transforms.ToTensor(),
        transforms.Normalize([0.5] * 3, [0.25] * 3),
        transforms.RandomErasing(0.2),
    ]
    if config.soften:
        steps.insert(4, Soften())
    return transforms.Compose(steps)


def train(config, folder):
    data = Photographs(folder, pipeline(config))
    training, validation = random_split(data, [0.9, 0.1])
    loader = DataLoader(training, config.batch, shuffle=True, num_workers=2, drop_last=True)
    held_out = DataLoader(validation, config.batch, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, config.classes),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), config.rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs)
    begin = time.perf_counter()
    for epoch in range(config.epochs):
        model.train()
        for pictures, classes in loader:
            loss = nn.functional.cross_entropy(model(pictures), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        model.eval()
        right = 0
        with torch.no_grad():
            for pictures, classes in held_out:
                right += (model(pictures).argmax(1) == classes).sum().item()
        log.info("epoch %d: loss %.3f, right %.2f", epoch, loss.item(), right / len(validation))
    print(f"seconds {time.perf_counter() - begin:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(4001)
    config = Config(args.epochs, soften=not args.without)
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(folder, config)
        train(config, folder)


if __name__ == "__main__":
    main()
