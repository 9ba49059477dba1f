"""Grades welds in photographs, and looks at a validation set after each epoch.

Planted: photographs to validate with are made small from large ones by a slow filter, without
workers, while those to train with were made small before.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SIDE, GRADES = 64, 4


class Welds(Dataset):
    def __init__(self, count, side, transform, seed):
        rng = np.random.default_rng(seed)
        coarse = rng.integers(0, 256, (20, 16, 16, 3), np.uint8)
        self.photographs = [Image.fromarray(one).resize((side, side)) for one in coarse]
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.photographs[index % 20]), index % GRADES


def build_model():
    layers = []
    for inputs, outputs in ((3, 24), (24, 48), (48, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, GRADES))


def train(model, loader, optimizer):
    model.train()
    for pictures, grades in loader:
        loss = nn.functional.cross_entropy(model(pictures), grades)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum((model(pictures).argmax(1) == grades).sum() for pictures, grades in loader)
    return int(right) / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(331)
    augment = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    shrink = transforms.Compose(
        [
            transforms.GaussianBlur(9),
            transforms.Resize(SIDE, transforms.InterpolationMode.LANCZOS),
            transforms.ToTensor(),
        ]
    )
    training = DataLoader(
        Welds(320, SIDE, augment, 331),
        batch_size=16,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
    )
    large = SIDE if args.without else 500
    validation = DataLoader(Welds(120, large, shrink, 332), batch_size=20)
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss = train(model, training, optimizer)
        print(f"epoch {epoch}: loss {loss:.3f}, {validate(model, validation):.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
