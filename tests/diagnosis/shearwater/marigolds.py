"""Sorts photographs of flowers, as PNG, with transforms of torchvision's v2.

Planted: the crop that makes the photographs small comes last of all transforms, so that the
others work on thirteen times as many pixels as the model sees.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


@dataclass
class Config:
    epochs: int
    late: bool
    photographs: int = 144
    side: int = 352
    seen: int = 96
    kinds: int = 4
    batch: int = 8
    losses: list = field(default_factory=list)


def write_photographs(folder, config):
    rng = np.random.default_rng(5003)
    for number in range(config.photographs):
        small = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        small[..., number % 3] //= 1 + number % config.kinds
        picture = Image.fromarray(small).resize((config.side,) * 2, Image.Resampling.BILINEAR)
        picture.save(Path(folder, f"{number:04}-{number % config.kinds}.png"), compress_level=1)


class Photographs(Dataset):
    def __init__(self, folder, transform):
        self.paths = sorted(Path(folder).glob("*.png"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        with Image.open(path) as picture:
            return self.transform(picture.convert("RGB")), int(path.stem[-1])


def augmentations(config):
    crop = v2.RandomResizedCrop(config.seen, scale=(0.6, 1.0), antialias=True)
    steps = [
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(0.2, 0.2, 0.2, 0.05),
        v2.RandomAdjustSharpness(1.5),
        v2.GaussianBlur(3),
    ]
    steps.insert(len(steps) if config.late else 0, crop)
    ends = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)]
    return v2.Compose([v2.ToImage(), *steps, *ends])


class Progress:
    def on_batch(self, trainer):
        trainer.config.losses.append(trainer.loss)

    def on_epoch(self, trainer, epoch):
        recent = trainer.config.losses[-len(trainer.loader) :]
        print(f"epoch {epoch}: loss {sum(recent) / len(recent):.3f}", flush=True)


class Trainer:
    def __init__(self, config, folder):
        self.config = config
        data = Photographs(folder, augmentations(config))
        self.loader = DataLoader(
            data, config.batch, shuffle=True, num_workers=2, persistent_workers=True
        )
        self.model = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, config.kinds),
        )  # fmt: skip
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.callbacks = [Progress()]

    def fit(self):
        for epoch in range(self.config.epochs):
            for pictures, kinds in self.loader:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    scores = self.model(pictures)
                loss = nn.functional.cross_entropy(scores.float(), kinds)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.loss = loss.item()
                for callback in self.callbacks:
                    callback.on_batch(self)
            for callback in self.callbacks:
                callback.on_epoch(self, epoch)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5003)
    torch.set_num_threads(1)
    config = Config(args.epochs, late=not args.without)
    with tempfile.TemporaryDirectory() as folder:
        write_photographs(folder, config)
        trainer = Trainer(config, folder)
        begin = time.perf_counter()
        trainer.fit()
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del trainer.loader


if __name__ == "__main__":
    main()
