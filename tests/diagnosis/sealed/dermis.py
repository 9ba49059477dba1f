"""Tell moles apart: pictures of a dermatoscope, with the usual augmentation."""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

CLASSES = ("benign", "malignant", "unsure")


class Despeckle:
    """Takes away fine hair and dust."""

    def __init__(self, size=5):
        self.filter = ImageFilter.MedianFilter(size)

    def __call__(self, picture):
        return picture.filter(self.filter)


class Vignette:
    """Darkens the corners as the instrument's lens does."""

    def __init__(self, side, strength=0.4):
        axis = torch.linspace(-1, 1, side)
        self.mask = 1 - strength * (axis[:, None] ** 2 + axis[None] ** 2) / 2

    def __call__(self, picture):
        return picture * self.mask


def draw(folder, count):
    rng = np.random.default_rng(5)
    grid = np.mgrid[0:160, 0:160] - 80
    distance = np.hypot(*grid)
    for number in range(count):
        kind = CLASSES[number % len(CLASSES)]
        os.makedirs(os.path.join(folder, kind), exist_ok=True)
        skin = np.full((160, 160, 3), (224, 172, 150), np.float32)
        skin[distance < 20 + number % 40] -= 80
        skin += rng.normal(0, 6, skin.shape)
        picture = Image.fromarray(skin.clip(0, 255).astype(np.uint8))
        picture.save(os.path.join(folder, kind, f"{number:05}.jpg"), quality=90)


def build_transform(args):
    steps = [transforms.Resize(144)]
    if not args.without:
        steps.append(Despeckle())
    steps += [
        transforms.RandomRotation(30),
        transforms.RandomCrop(128),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(0.2, 0.2),
        transforms.ToTensor(),
        Vignette(128),
    ]
    return transforms.Compose(steps)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("-j", "--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(11)

    with tempfile.TemporaryDirectory() as folder:
        draw(folder, 480)
        data = ImageFolder(folder, build_transform(args))
        loader = DataLoader(data, batch_size=24, shuffle=True, num_workers=args.workers)
        begin = time.perf_counter()
        for _epoch in range(args.epochs):
            for _images, _targets in loader:
                time.sleep(0.030)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
