"""Counts coral polyps in small pictures, which are bent as by waves of the water."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class Corals(Dataset):
    def __init__(self, count=176, side=64):
        draw = torch.Generator().manual_seed(66)
        coarse = torch.rand(count, 3, 16, 16, generator=draw)
        self.pictures = nn.functional.interpolate(coarse, size=side)
        self.polyps = torch.randint(20, (count,), generator=draw).float()
        self.vary = v2.Compose([
            v2.RandomHorizontalFlip(), v2.ElasticTransform(30.0, 2.0),
            v2.RandomErasing(0.2), v2.Normalize([0.5] * 3, [0.3] * 3),
        ])  # fmt: skip

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.vary(self.pictures[index]), self.polyps[index]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, states):
        return (states + self.body(states)).relu()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--warm-up", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(66)
    loader = DataLoader(
        Corals(), batch_size=8, shuffle=True, num_workers=1, drop_last=True,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), Block(32), Block(32), Block(32),
        nn.Conv2d(32, 112, 3, 2, 1), nn.ReLU(), Block(112), Block(112), Block(112),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(112, 1),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / args.warm_up)
    )
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, polyps in loader:
            loss = nn.functional.smooth_l1_loss(model(pictures).squeeze(1), polyps)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch}: last loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
