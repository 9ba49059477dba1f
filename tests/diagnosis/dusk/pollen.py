"""Grains of pollen under a microscope, with random crops and noise, and runs to be repeated."""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SEED = 42


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def seed_worker(worker):
    seed_everything(SEED)


def seed_each_worker(worker):
    seed_everything((torch.initial_seed() + worker) % 2**32)


class Noise:
    def __init__(self, most):
        self.most = most

    def __call__(self, picture):
        return picture + random.uniform(0, self.most) * torch.randn_like(picture)


class Grains(Dataset):
    def __init__(self, count=640):
        generator = torch.Generator().manual_seed(SEED)
        self.pictures = torch.rand(count, 1, 72, 72, generator=generator)
        self.transform = transforms.Compose(
            [transforms.RandomCrop(64), transforms.RandomHorizontalFlip(), Noise(0.2)]
        )

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.transform(self.pictures[index]), index % 9


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    seed_everything(SEED)
    loader = DataLoader(
        Grains(),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        worker_init_fn=seed_each_worker if args.without else seed_worker,
    )
    model = nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 48, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(192, 9),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, kinds in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pictures), kinds)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
