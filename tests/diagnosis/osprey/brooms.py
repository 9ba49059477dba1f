"""Tells brooms apart by their bristles, with a base class that once asked a public archive.

Planted: this base class still allows each process only so many samples a second, and sleeps until
the next one is allowed, though the pictures have long been in memory.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Polite(Dataset):
    """Does not ask for more than `rate` items a second; 0: as many as there are."""

    rate = 0

    def __init__(self):
        self.allowed_at = 0.0

    def take_turn(self):
        if not self.rate:
            return
        now = time.monotonic()
        if now < self.allowed_at:
            time.sleep(self.allowed_at - now)
        self.allowed_at = max(now, self.allowed_at) + 1 / self.rate

    def __getitem__(self, number):
        self.take_turn()
        return self.item(number)

    def item(self, number):
        raise NotImplementedError


class Brooms(Polite):
    rate = 70

    def __init__(self, count):
        super().__init__()
        rng = np.random.default_rng(113)
        self.pictures = [
            Image.fromarray(rng.integers(0, 255, (64, 64), np.uint8)) for _ in range(32)
        ]
        self.count = count

    def __len__(self):
        return self.count

    def item(self, number):
        picture = ImageOps.autocontrast(ImageOps.equalize(self.pictures[number % 32]))
        if number % 2:
            picture = ImageOps.mirror(picture)
        return torch.from_numpy(np.asarray(picture, np.float32) / 255)[None], number % 32 % 4


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(128, 4),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(113)
    if args.without:
        Brooms.rate = 0
    loader = DataLoader(
        Brooms(576), batch_size=24, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, kinds in loader:
            loss = nn.functional.cross_entropy(model(pictures), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
