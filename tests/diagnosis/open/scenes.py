"""Train a scene classifier on a folder of pictures."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2


def make_pictures(root, count=128):
    rng = np.random.default_rng(2)
    for number in range(count):
        folder = root / f"scene{number % 4}"
        folder.mkdir(exist_ok=True)
        small = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(small).resize((160, 160)).save(folder / f"{number}.jpg")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    transform = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomCrop(128),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    with tempfile.TemporaryDirectory() as root:
        make_pictures(Path(root))
        loader = DataLoader(
            ImageFolder(root, transform),
            batch_size=8,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=True,
        )
        begin = time.perf_counter()
        for _ in range(5):
            for _images, _labels in loader:
                time.sleep(0.080)  # forward and backward on the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
