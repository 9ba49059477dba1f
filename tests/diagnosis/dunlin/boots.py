"""Tells boots from shoes, and validates after every thirty steps.

Planted: each validation starts the two workers of its loader again, which are spawned and not
kept. The loader of the training keeps its one worker.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, EVERY = 48, 30


class Footwear(Dataset):
    def __init__(self, count, seed, transform):
        draw = torch.Generator().manual_seed(seed)
        self.pictures = torch.randint(0, 255, (40, 3, 64, 64), dtype=torch.uint8, generator=draw)
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.pictures[index % 40]), index % 2


def make_transform(train):
    first = [v2.RandomCrop(SIDE), v2.RandomHorizontalFlip()] if train else [v2.CenterCrop(SIDE)]
    return v2.Compose(
        [*first, v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)]
    )


def make_loaders(keep):
    train = DataLoader(
        Footwear(3840, 17, make_transform(train=True)),
        batch_size=32, shuffle=True, num_workers=1, persistent_workers=True,
    )  # fmt: skip
    check = DataLoader(
        Footwear(192, 18, make_transform(train=False)),
        batch_size=32, num_workers=2, multiprocessing_context="spawn", persistent_workers=keep,
    )  # fmt: skip
    return train, check


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2), nn.ReLU(), nn.Conv2d(24, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 2),
    )  # fmt: skip


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    train, check = make_loaders(keep=args.without)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    best = 0.0
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for number, (x, y) in enumerate(train, 1):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % EVERY == 0:
                best = max(best, validate(model, check))
        print(f"epoch {epoch}: best {best:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
