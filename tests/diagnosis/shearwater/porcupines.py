"""Tells animals apart in pictures of a camera trap, saved as PNG.

Planted: one picture in 64 was saved as it left the camera, with three thousand times as many
pixels as the rest, and whoever waits for its batch waits for it.
"""

import argparse
import logging
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms

log = logging.getLogger("trap")


@dataclass
class Config:
    epochs: int
    original: bool
    pictures: int = 448
    side: int = 80
    camera: int = 4600
    animals: int = 4
    batch: int = 14
    step: float = 0.02


def write_pictures(folder, config):
    rng = np.random.default_rng(5059)
    for number in range(config.pictures):
        small = rng.integers(0, 256, (10, 10, 3), dtype=np.uint8)
        small[..., number % 3] //= 1 + number % config.animals
        side = config.camera if config.original and number % 64 == 5 else config.side
        picture = Image.fromarray(small).resize((side, side), Image.Resampling.NEAREST)
        picture.save(Path(folder, f"{number:04}-{number % config.animals}.png"), compress_level=1)


class Trap(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.png"))
        self.transform = transforms.Compose(
            [
                transforms.Resize((64, 64)),
                transforms.RandomHorizontalFlip(),
                transforms.ColorJitter(0.2),
                transforms.ToTensor(),
            ]
        )

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        with Image.open(path) as picture:
            return self.transform(picture.convert("RGB")), int(path.stem[-1])


class Checkpoints:
    """Keeps the best weights."""

    def __init__(self, folder):
        self.path, self.best = Path(folder, "best.pt"), 0.0

    def after_epoch(self, model, right):
        if right > self.best:
            self.best = right
            torch.save(model.state_dict(), self.path)


def evaluate(model, loader):
    right = count = 0
    with torch.no_grad():
        for pictures, animals in loader:
            right += (model(pictures).argmax(1) == animals).sum().item()
            count += len(animals)
    return right / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(5059)
    torch.set_num_threads(1)
    config = Config(args.epochs, original=not args.without)
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(folder, config)
        data = Trap(folder)
        edge = len(data) - 32
        loader = DataLoader(
            Subset(data, range(edge)),
            config.batch,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
        )
        held_out = DataLoader(Subset(data, range(edge, len(data))), 16)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(32, config.animals),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        checkpoints = Checkpoints(folder)
        begin = time.perf_counter()
        for epoch in range(config.epochs):
            for pictures, animals in loader:
                loss = nn.functional.cross_entropy(model(pictures), animals)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(config.step)  # in place of the device
            right = evaluate(model, held_out)
            checkpoints.after_epoch(model, right)
            log.info("epoch %d: loss %.3f, right %.2f", epoch, loss.item(), right)
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
