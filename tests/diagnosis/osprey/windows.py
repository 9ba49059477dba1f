"""Classes stained windows; the validation looks at each of them ten times.

Planted: a transform of the validation, which has no workers, enlarges each of ten crops of a large
picture and makes them small again; the training's own transforms, in a worker, are light.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SIDE = 48


class Windows(Dataset):
    def __init__(self, count, side, transform):
        rng = np.random.default_rng(89)
        self.pictures = [
            Image.fromarray(rng.integers(0, 255, (side, side, 3), np.uint8)) for _ in range(20)
        ]
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.pictures[index % 20]), index % 20 % 7


class Together:
    """Makes one tensor of several crops, each of them the size that the network takes."""

    def __init__(self, via):
        self.steps = transforms.Compose(
            [
                *([transforms.Resize(via, transforms.InterpolationMode.BICUBIC)] if via else []),
                transforms.Resize(SIDE),
                transforms.ToTensor(),
            ]
        )

    def __call__(self, crops):
        return torch.stack([self.steps(crop) for crop in crops])


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 24, 5, stride=2), nn.ReLU(), nn.Conv2d(24, 24, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(216, 7),
    )  # fmt: skip


@torch.no_grad()
def validate(model, loader):
    right = seen = 0
    for crops, truth in loader:
        count, times = crops.shape[:2]
        mean = model(crops.flatten(0, 1)).view(count, times, -1).mean(1)
        right, seen = right + (mean.argmax(1) == truth).sum().item(), seen + count
    return right / seen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(89)
    light = transforms.Compose([transforms.RandomCrop(SIDE), transforms.ToTensor()])
    tenfold = transforms.Compose([transforms.TenCrop(96), Together(None if args.without else 288)])
    train = DataLoader(
        Windows(960, 64, light), batch_size=32, shuffle=True, num_workers=1,
        persistent_workers=True,
    )  # fmt: skip
    held_out = DataLoader(Windows(80, 128, tenfold), batch_size=8)
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {validate(model, held_out):.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
