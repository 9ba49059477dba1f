"""Sorts spools of thread by colour: a small network, pictures augmented by two workers."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class Spools(Dataset):
    def __init__(self, count=1280, seed=2):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.randint(256, (64, 3, 72, 72), generator=generator, dtype=torch.uint8)
        self.colours = torch.randint(12, (count,), generator=generator)
        self.augment = v2.Compose(
            [
                v2.RandomResizedCrop(56, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return len(self.colours)

    def __getitem__(self, index):
        return self.augment(self.pictures[index % 64]), self.colours[index]


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, maps):
        return torch.relu(maps + self.body(maps))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.without else 4)
    torch.manual_seed(2)
    loader = DataLoader(
        Spools(), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4), *[Block(16) for _ in range(6)],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 12),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, colours in loader:
            loss = nn.functional.cross_entropy(model(pictures), colours)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
