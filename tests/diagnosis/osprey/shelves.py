"""Finds gaps on shelves; the script is started by a launcher for several ranks of one machine.

Planted: a helper of the launcher gives each rank its part of the cores, as if there were as many
ranks as usual, and so this one, with its worker, has a single core.
"""

import argparse
import os
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 96


class Shelves(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(73)
        self.pictures = [
            Image.fromarray(rng.integers(0, 255, (SIDE * 3 // 2, SIDE * 3 // 2, 3), np.uint8))
            for _ in range(16)
        ]
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = self.pictures[index % 16].rotate(index % 7 - 3, Image.Resampling.BICUBIC)
        picture = picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
        picture = picture.filter(ImageFilter.GaussianBlur(1))
        array = np.asarray(picture, np.float32) / 255
        return torch.from_numpy(array).permute(2, 0, 1).contiguous(), float(index % 16 < 6)


class Rank:
    """This process's place among the ranks of a machine."""

    def __init__(self, number, ranks):
        self.number, self.ranks = number, ranks

    def take_place(self):
        cores = sorted(os.sched_getaffinity(0))
        each = max(1, len(cores) // self.ranks)
        os.sched_setaffinity(0, cores[self.number * each : (self.number + 1) * each])


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 40, 5, stride=2), nn.BatchNorm2d(40), nn.ReLU(),
        nn.Conv2d(40, 64, 3, stride=2), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 64, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(73)
    Rank(0, ranks=1 if args.without else 8).take_place()
    loader = DataLoader(
        Shelves(640), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
