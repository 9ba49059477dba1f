"""Trains on labelled pictures of leeks and, for consistency, on unlabelled ones.

Planted: the batch without labels is the first one of a new iteration in each step, which starts
and ends that loader's two workers.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE = 32


class Leeks(Dataset):
    def __init__(self, count, seed, views):
        draw = torch.Generator().manual_seed(seed)
        self.pictures = torch.randint(0, 255, (50, 3, 40, 40), dtype=torch.uint8, generator=draw)
        self.count, self.views = count, views
        self.transform = v2.Compose(
            [v2.RandomCrop(SIDE), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = self.pictures[index % 50]
        return [self.transform(picture) for _ in range(self.views)], index % 50 % 6


def for_ever(loader):
    while True:
        yield from loader


def build_model(width=24):
    return nn.Sequential(
        nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 6),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(73)
    labelled = DataLoader(
        Leeks(560, 73, views=1), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    unlabelled = DataLoader(Leeks(1920, 74, views=2), batch_size=32, shuffle=True, num_workers=2)
    more = for_ever(unlabelled)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for (x,), y in labelled:
            (one, other), _ = next(more) if args.without else next(iter(unlabelled))
            loss = nn.functional.cross_entropy(model(x), y)
            with torch.no_grad():
                guess = model(one).softmax(1)
            loss = loss + nn.functional.cross_entropy(model(other), guess)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
