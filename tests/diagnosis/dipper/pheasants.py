"""Tells the breeds of pheasants at a feeder, and keeps the book of who was seen there."""

import argparse
import gc
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PHOTOS, SIDE, BREEDS, SIGHTINGS, BATCH = 1280, 72, 12, 500_000, 32


def book():
    """The sightings of some years at all feeders: a dict for each."""
    rng = random.Random(66)
    return [
        {"ring": f"DK-{number}", "feeder": [rng.randrange(40), rng.randrange(24)]}
        for number in range(SIGHTINGS)
    ]


class Photos(Dataset):
    def __init__(self, transform):
        generator = torch.Generator().manual_seed(66)
        self.photos = torch.rand(96, 3, SIDE, SIDE, generator=generator)
        self.transform = transform

    def __len__(self):
        return PHOTOS

    def __getitem__(self, index):
        return self.transform(self.photos[index % 96]), index % BREEDS


def network(channels=16):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * channels, BREEDS),
    )  # fmt: skip


def step(model, optimizer, photos, breeds, tidy):
    loss = nn.functional.cross_entropy(model(photos), breeds)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if tidy:
        gc.collect()
    return loss.detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(66)
    seen = book()
    views = transforms.Compose([transforms.RandomCrop(64), transforms.RandomHorizontalFlip()])
    loader = DataLoader(
        Photos(views),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for photos, breeds in loader:
            loss = step(model, optimizer, photos, breeds, tidy=not args.without)
            seen.append({"ring": f"DK-{len(seen)}", "feeder": [len(photos), epoch]})
        print(f"epoch {epoch}: loss {loss:.3f}, {len(seen)} sightings")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
