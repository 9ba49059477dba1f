"""Tells sorts of lilacs apart, and tests the model after each epoch.

Planted: the training has two workers, but the loop that tests takes its pictures in the main
process, and reads and changes each of them while the model waits: most of the time goes there.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SORTS, SIDE, READ, STEP = 5, 96, 0.006, 0.03


class Lilacs(Dataset):
    def __init__(self, count, transform, seed):
        rng = np.random.default_rng(seed)
        self.sorts = rng.integers(0, SORTS, count)
        self.pictures = rng.integers(0, 150, (count, 3, SIDE, SIDE), dtype=np.uint8)
        self.pictures += (20 * self.sorts).astype(np.uint8)[:, None, None, None]
        self.transform = transform

    def __len__(self):
        return len(self.sorts)

    def read(self, index):
        time.sleep(READ)  # the share is on another machine
        return torch.from_numpy(self.pictures[index])

    def __getitem__(self, index):
        return self.transform(self.read(index)), int(self.sorts[index])


def transforms(train):
    change = [v2.RandomCrop(80), v2.RandomHorizontalFlip()] if train else [v2.CenterCrop(80)]
    return v2.Compose([*change, v2.ToDtype(torch.float32, scale=True)])


def train(model, optimizer, loader):
    model.train()
    for pictures, sorts in loader:
        loss = nn.functional.cross_entropy(model(pictures), sorts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(STEP)  # the card
    return loss.item()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = total = 0
    for pictures, sorts in loader:
        right += (model(pictures).argmax(1) == sorts).sum().item()
        total += len(sorts)
        time.sleep(STEP / 3)
    return right / total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(4091)
    torch.set_num_threads(1)
    training = DataLoader(
        Lilacs(240, transforms(train=True), 4091),
        batch_size=8,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    workers = 4 if args.without else 0
    testing = DataLoader(
        Lilacs(400, transforms(train=False), 4093),
        batch_size=16,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        nn.Linear(72, SORTS),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss = train(model, optimizer, training)
        print(f"epoch {epoch}: loss {loss:.3f}, {validate(model, testing):.0%} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, testing


if __name__ == "__main__":
    main()
