"""Sorts photographs of hulls by how fouled they are.

Planted: a line copied from a larger machine gives the training step eight threads, on cores that
two workers need as well.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

GRADES = 5


def take_photographs(count):
    rng = np.random.default_rng(211)
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (20, 20, 3), np.uint8))
        file = io.BytesIO()
        coarse.resize((320, 320), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
        yield file.getvalue()


class Hulls(Dataset):
    def __init__(self, count, transform):
        self.files = list(take_photographs(40))
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        return self.transform(picture), index % GRADES


def build_model():
    layers = []
    for inputs, outputs in ((3, 24), (24, 32), (32, 48), (48, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs)]
        layers += [nn.SiLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, GRADES))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.without else 8)
    torch.manual_seed(211)
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(96),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ]
    )
    loader = DataLoader(
        Hulls(960, transform),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, grades in loader:
            loss = nn.functional.cross_entropy(model(pictures), grades)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
