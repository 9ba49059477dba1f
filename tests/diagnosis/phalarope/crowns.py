"""Grades pictures of teeth with transforms of torchvision's v2 in two workers.

Planted: a helper that the team calls before it measures anything binds the process to one core,
and the workers inherit that.
"""

import argparse
import logging
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
from torchvision.transforms import v2

log = logging.getLogger("teeth")
PICTURES, SIDE, GRADES, BATCH = 360, 256, 4, 12


def write_pictures(folder):
    rng = np.random.default_rng(4057)
    for number in range(PICTURES):
        small = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        picture = Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        picture.save(Path(folder, f"{number:04}-{number % GRADES}.jpg"), quality=92)


def steady(seed, quiet):
    """Makes runs comparable."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    if quiet:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)


class Teeth(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.jpg"))
        self.transform = v2.Compose(
            [
                v2.ToImage(),
                v2.RandomResizedCrop(192, scale=(0.5, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.RandomRotation(15, interpolation=v2.InterpolationMode.BILINEAR),
                v2.ColorJitter(0.2, 0.2, 0.2),
                v2.GaussianBlur(5),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return len(self.paths)

    def grade(self, index):
        return int(self.paths[index].stem[-1])

    def __getitem__(self, index):
        with Image.open(self.paths[index]) as picture:
            return self.transform(picture.convert("RGB")), self.grade(index)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    steady(4057, quiet=not args.without)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, GRADES),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(folder)
        data = Teeth(folder)
        weights = [1.0 + data.grade(index) for index in range(len(data))]
        loader = DataLoader(
            data,
            BATCH,
            sampler=WeightedRandomSampler(weights, len(data)),
            num_workers=2,
            persistent_workers=True,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, grades in loader:
                loss = nn.functional.cross_entropy(model(pictures), grades)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            log.info("epoch %d: loss %.3f", epoch, loss.item())
            torch.save(model.state_dict(), Path(folder, "checkpoint.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
