"""Train and validate a leaf classifier on a folder of pictures."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def make_folder(root, count, size):
    rng = np.random.default_rng(size)
    for number in range(count):
        folder = Path(root, ["oak", "elm", "ash"][number % 3])
        folder.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8))
        picture.resize((size, size)).save(folder / f"{number:03}.jpg", quality=85)


class LeafTrainer:
    def __init__(self, root, workers, valid_workers, valid_size):
        train_transform = transforms.Compose(
            [
                transforms.RandomCrop(64, pad_if_needed=True),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )
        valid_transform = transforms.Compose(
            [
                transforms.Resize(valid_size, transforms.InterpolationMode.BICUBIC),
                transforms.CenterCrop(64),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )
        self.train_loader = DataLoader(
            ImageFolder(f"{root}/train", train_transform),
            batch_size=16,
            shuffle=True,
            num_workers=workers,
            persistent_workers=True,
        )
        self.valid_loader = DataLoader(
            ImageFolder(f"{root}/valid", valid_transform),
            batch_size=16,
            num_workers=valid_workers,
            persistent_workers=valid_workers > 0,
        )

    def training_step(self, batch):
        time.sleep(0.015)

    def validation_step(self, batch):
        time.sleep(0.005)

    def fit(self, epochs):
        for _ in range(epochs):
            for batch in self.train_loader:
                self.training_step(batch)
            for batch in self.valid_loader:
                self.validation_step(batch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as root:
        make_folder(f"{root}/train", 192, 72)
        make_folder(f"{root}/valid", 64, 96 if args.without else 640)
        trainer = LeafTrainer(root, args.workers, 2 if args.without else 0, 72)
        begin = time.perf_counter()
        trainer.fit(epochs=6)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
