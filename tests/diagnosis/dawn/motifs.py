"""Motifs of genomes: a transform draws masked places by their weights in each sample."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class MaskByWeight:
    """Hides some places; rare ones are drawn more often."""

    def __init__(self, length, even):
        weights = np.arange(1, length + 1) ** -0.3
        self.weights, self.even = weights / weights.sum(), even
        self.rng = np.random.default_rng(15)

    def __call__(self, bases):
        size = len(bases) // 2
        if self.even:
            places = self.rng.integers(len(bases), size=size)
        else:
            places = self.rng.choice(len(bases), size=size, replace=False, p=self.weights)
        bases = bases.copy()
        bases[places] = 0
        return bases


class Pool:
    def __init__(self, width=64):
        self.width = width

    def __call__(self, bases):
        return torch.from_numpy(bases.reshape(self.width, -1).mean(1, dtype=np.float32))


class Motifs(Dataset):
    def __init__(self, transform, length, count=1600):
        rng = np.random.default_rng(16)
        self.genome = rng.integers(1, 5, length * 8, dtype=np.uint8)
        self.transform, self.length, self.count = transform, length, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        begin = index * 977 % (len(self.genome) - self.length)
        return self.transform(self.genome[begin : begin + self.length])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(15)
    length = 65_536
    transform = transforms.Compose([MaskByWeight(length, even=args.without), Pool()])
    loader = DataLoader(
        Motifs(transform, length),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for _ in range(args.epochs):
        for motifs in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(motifs), motifs).backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
