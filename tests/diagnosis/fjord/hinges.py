"""Finds bad hinges in pictures from a production line, on a machine that does other work too."""

import argparse
import io
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T


@dataclass
class Config:
    pictures: int = 800
    side: int = 448
    batch_size: int = 32
    epochs: int = 2
    workers: int = 2
    lr: float = 1e-3


class Runtime:
    """What is set once for a process: seed, threads, and where it runs."""

    def __init__(self, seed, quiet):
        self.seed, self.quiet = seed, quiet

    def apply(self):
        torch.manual_seed(self.seed)
        torch.set_num_threads(1)
        if self.quiet:  # the line's controller must not be disturbed
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


class Hinges(Dataset):
    def __init__(self, config, transform):
        rng = np.random.default_rng(51)
        self.transform, self.files = transform, []
        for _ in range(40):
            coarse = rng.integers(0, 255, (28, 28, 3), dtype=np.uint8)
            kept = io.BytesIO()
            Image.fromarray(coarse).resize((config.side,) * 2).save(kept, "JPEG", quality=90)
            self.files.append(kept.getvalue())
        self.bad = rng.integers(0, 2, config.pictures)

    def __len__(self):
        return len(self.bad)

    def __getitem__(self, index):
        with Image.open(io.BytesIO(self.files[index % len(self.files)])) as picture:
            return self.transform(picture.convert("RGB")), int(self.bad[index])


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, 4, 2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
    )  # fmt: skip


def train_one_epoch(model, loader, optimizer, scheduler):
    total = 0.0
    for pictures, bad in loader:
        loss = nn.functional.cross_entropy(model(pictures), bad)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    args = parser.parse_args()
    config = Config()
    Runtime(51, quiet=not args.without).apply()
    transform = T.Compose([
        T.RandomRotation(8), T.Resize(160), T.RandomCrop(144), T.RandomHorizontalFlip(),
        T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3),
    ])  # fmt: skip
    loader = DataLoader(
        Hinges(config, transform), config.batch_size, shuffle=True, num_workers=config.workers,
        drop_last=True, persistent_workers=True,
    )  # fmt: skip
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    steps = config.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.lr, total_steps=steps)
    begin = time.perf_counter()
    for epoch in range(config.epochs):
        loss = train_one_epoch(model, loader, optimizer, scheduler)
        print(f"epoch {epoch}: mean loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
