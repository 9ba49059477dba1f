"""Sorts pictures of capes by their cut, with torchvision's first transforms on PIL pictures.

Planted: pictures are turned and their colours changed at full size, and only then made smaller.
Two workers are kept.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

FULL, SMALL = 288, 72


class Capes(Dataset):
    def __init__(self, count, transform):
        rng = np.random.default_rng(23)
        self.pictures = [
            Image.fromarray(rng.integers(0, 255, (FULL, FULL, 3), np.uint8)) for _ in range(24)
        ]
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.pictures[index % 24]), index % 24 % 4


def train_transform(small_first):
    smaller = transforms.Resize(SMALL)
    change = [
        transforms.RandomRotation(15, interpolation=transforms.InterpolationMode.BICUBIC),
        transforms.ColorJitter(0.3, 0.3, 0.3, 0.1),
        transforms.RandomHorizontalFlip(),
    ]
    return transforms.Compose(
        [
            *([smaller, *change] if small_first else [*change, smaller]),
            transforms.RandomCrop(64),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )


def build_model(width=16):
    return nn.Sequential(
        nn.Conv2d(3, width, 5, stride=2), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(18 * width, 4),
    )  # fmt: skip


@torch.no_grad()
def validate(model, loader):
    return sum((model(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(23)
    plain = transforms.Compose(
        [transforms.Resize(64), transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.25] * 3)]
    )
    train = DataLoader(
        Capes(640, train_transform(args.without)),
        batch_size=16, shuffle=True, num_workers=2, persistent_workers=True,
    )  # fmt: skip
    check = DataLoader(Capes(48, plain), batch_size=48)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {validate(model, check):.2f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
