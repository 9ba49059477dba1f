"""Fine-tune a classifier on a folder of JPEG pictures."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder


def make_pictures(root, count=160, size=320):
    rng = np.random.default_rng(7)
    for number in range(count):
        folder = root / ("rose" if number % 2 else "tulip")
        folder.mkdir(exist_ok=True)
        small = rng.integers(0, 255, (10, 10, 3), dtype=np.uint8)
        Image.fromarray(small).resize((size, size)).save(folder / f"{number:04}.jpg", quality=90)


def train_step(images, labels):
    # The forward and backward pass run on the accelerator.
    time.sleep(0.040)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    if args.workers is None:
        args.workers = 2 if args.without else 0

    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.2, 0.2, 0.2),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    with tempfile.TemporaryDirectory() as root:
        make_pictures(Path(root))
        train_set = ImageFolder(root, augment)
        loader = DataLoader(
            train_set,
            batch_size=16,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=args.workers > 0,
        )
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for images, labels in loader:
                train_step(images, labels)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
