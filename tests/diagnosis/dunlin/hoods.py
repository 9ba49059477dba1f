"""Segments hoods of cars; the script was written for a machine of many cores.

Planted: the training step uses eight threads on whatever machine it runs, and three workers that
augment with numpy share the cores with it.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, THREADS, WORKERS = 64, 8, 3


class Hoods(Dataset):
    """Pictures with a part that is to be found, in other light and with noise."""

    def __init__(self, count):
        rng = np.random.default_rng(71)
        self.pictures = rng.random((30, SIDE, SIDE, 3), np.float32)
        self.masks = (self.pictures[..., 0] > 0.6).astype(np.int64)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        picture, mask = self.pictures[index % 30], self.masks[index % 30]
        if rng.random() < 0.5:
            picture, mask = picture[:, ::-1], mask[:, ::-1]
        light = rng.uniform(0.7, 1.3, 3).astype(np.float32)
        noisy = picture**1.1 * light + rng.normal(0, 0.03, picture.shape)
        return noisy.astype(np.float32).transpose(2, 0, 1).copy(), mask.copy()


class Segmenter(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.down = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.middle = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        )  # fmt: skip
        self.up = nn.ConvTranspose2d(width, 2, 2, stride=2)

    def forward(self, x):
        small = torch.relu(self.down(x))
        return self.up(small + self.middle(small))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.without else THREADS)
    torch.manual_seed(71)
    loader = DataLoader(
        Hoods(1920), batch_size=16, shuffle=True, num_workers=WORKERS, persistent_workers=True
    )
    model = Segmenter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
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
