"""Scans of stamps, read by two workers that have little to do; the network takes the time."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms


def scans(folder):
    rng = np.random.default_rng(6)
    for country in ("chile", "ghana", "nepal"):
        place = Path(folder, country)
        place.mkdir()
        for i in range(64):
            picture = rng.integers(0, 256, (96, 96, 3), dtype=np.uint8)
            Image.fromarray(picture).save(place / f"{i}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="nothing to leave out")
    parser.parse_args()
    torch.set_num_threads(1)
    transform = transforms.Compose([transforms.RandomCrop(88), transforms.ToTensor()])
    with tempfile.TemporaryDirectory() as folder:
        scans(folder)
        data = datasets.ImageFolder(folder, transform)
        loader = DataLoader(
            data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
        )
        model = models.resnet18(num_classes=3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        begin = time.perf_counter()
        for _ in range(2):
            for images, countries in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images), countries).backward()
                optimizer.step()
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
