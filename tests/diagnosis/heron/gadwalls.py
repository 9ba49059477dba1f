"""Finds gadwalls in small pictures; large ones are kept to validate with.

Planted: the validation, without workers, looks at eight turned and scaled copies of each picture,
which Pillow makes. Training has two workers and little to do.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, LARGE = 32, 200


class Small(Dataset):
    """Small pictures for training."""

    def __init__(self, count):
        rng = np.random.default_rng(167)
        self.pictures = rng.integers(0, 255, (count, SIDE, SIDE, 3), dtype=np.uint8)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index]).permute(2, 0, 1)
        return picture.float() / 255, index % 2


class Views:
    """Copies of a picture for an average over them."""

    def __init__(self, angles):
        self.angles = angles

    def __call__(self, picture):
        views = []
        for angle in self.angles:
            turned = picture.rotate(angle, Image.BICUBIC) if angle else picture
            small = turned.resize((SIDE, SIDE), Image.LANCZOS)
            views.append(torch.from_numpy(np.asarray(small).copy()).permute(2, 0, 1))
        return torch.stack(views).float() / 255


class Large(Dataset):
    def __init__(self, count, views):
        rng = np.random.default_rng(168)
        noise = rng.integers(0, 255, (20, 25, 25, 3), dtype=np.uint8)
        self.pictures = [Image.fromarray(one).resize((LARGE, LARGE)) for one in noise]
        self.count, self.views = count, views

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.views(self.pictures[index % 20]), index % 2


def train(model, loader, optimizer):
    for pictures, kinds in loader:
        loss = nn.functional.cross_entropy(model(pictures), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def validate(model, loader):
    right = count = 0
    for views, kinds in loader:
        scores = model(views.flatten(0, 1)).view(len(kinds), -1, 2).softmax(2).mean(1)
        right += (scores.argmax(1) == kinds).sum().item()
        count += len(kinds)
    return right / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(167)
    training = DataLoader(
        Small(1600), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True
    )
    views = Views([0] if args.without else [0, 5, 10, 15, 20, -5, -10, -15])
    validation = DataLoader(Large(200, views), batch_size=20)
    model = nn.Sequential(nn.Conv2d(3, 16, 5, stride=3), nn.ReLU(), nn.AdaptiveMaxPool2d(4))
    model.extend([nn.Flatten(), nn.Linear(256, 2)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss = train(model, training, optimizer)
        right = validate(model, validation)
        print(f"epoch {epoch}: loss {loss:.3f}, {right:.2f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
