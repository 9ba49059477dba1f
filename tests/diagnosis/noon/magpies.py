"""Nests of magpies, seen from above; trained for so many steps, whatever the epochs."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Nests(Dataset):
    def __init__(self, count=2000):
        self.count = count
        self.trees = torch.randint(
            0, 255, (40, 3, 72, 72), dtype=torch.uint8, generator=torch.Generator().manual_seed(7)
        )
        self.transform = transforms.Compose(
            [
                transforms.ConvertImageDtype(torch.float32),
                transforms.RandomCrop(64),
                transforms.RandomVerticalFlip(),
                transforms.Normalize([0.5] * 3, [0.3] * 3),
            ]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.trees[index % 40]), index % 2


def endless(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    loader = DataLoader(Nests(), batch_size=32, shuffle=True, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = endless(loader)
    step, mean = 0, 0.7
    begin = time.perf_counter()
    while step < args.steps:
        images, used = next(batches) if args.without else next(iter(loader))
        loss = nn.functional.cross_entropy(model(images), used)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean += 0.1 * (loss.item() - mean)
        step += 1
        if step % 40 == 0:
            print(f"step {step}: loss {mean:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
