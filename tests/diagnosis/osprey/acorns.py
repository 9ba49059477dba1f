"""Sorts acorns from small pictures that torchvision's second transforms change.

Nothing is planted: a residual network is the work. Without workers, pictures in memory are
cropped, flipped and erased, which are many transforms and little time.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class Acorns(Dataset):
    def __init__(self, count):
        draw = torch.Generator().manual_seed(127)
        self.pictures = torch.randint(0, 255, (60, 3, 36, 36), dtype=torch.uint8, generator=draw)
        self.count = count
        self.transform = v2.Compose(
            [
                v2.RandomCrop(32),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
                v2.RandomErasing(p=0.3),
            ]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.pictures[index % 60]), index % 60 % 5


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.layers(x))


def build_model(width=48, depth=3):
    enter = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
    leave = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 5))
    return nn.Sequential(enter, *(Block(width) for _ in range(depth)), leave)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(127)
    loader = DataLoader(Acorns(400), batch_size=20, shuffle=True)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
