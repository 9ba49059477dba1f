"""Grades nuts by their X-ray pictures; the network is the work.

Planted: the data set keeps each prepared picture for a table of statistics that nobody asks for, in
each of two workers, so that their memory grows with every sample. It costs no time.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 224


class Nuts(Dataset):
    def __init__(self, count, keep):
        self.raw = np.random.default_rng(97).integers(0, 4096, (24, SIDE, SIDE), np.uint16)
        self.count, self.keep, self.kept = count, keep, []

    def __len__(self):
        return self.count

    def prepare(self, raw):
        low, high = raw.min(), raw.max()
        return (raw.astype(np.float32) - low) / (high - low)

    def __getitem__(self, index):
        picture = self.prepare(self.raw[index % 24])
        if self.keep:
            self.kept.append((index, picture, picture**2))
        return torch.from_numpy(picture)[None], index % 24 % 3

    def statistics(self):
        pictures = [picture for _, picture, _ in self.kept]
        return np.mean(pictures, axis=0), np.std(pictures, axis=0)


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 7, stride=3), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        )  # fmt: skip
        self.head = nn.Linear(2 * width, 3)

    def forward(self, pictures):
        return self.head(self.layers(pictures).flatten(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(97)
    loader = DataLoader(
        Nuts(480, keep=not args.without),
        batch_size=12,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
