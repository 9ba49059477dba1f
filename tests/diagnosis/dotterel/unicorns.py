"""Draws unicorns: an autoencoder of small pictures, looked at shortly after each epoch.

Nothing is planted: the network is the work. The validation has a loader without workers, for
two batches.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SIDE = 48


class Unicorns(Dataset):
    """Pictures of a body, a head and a horn."""

    def __init__(self, count, transform, seed):
        rng = np.random.default_rng(seed)
        self.transform = transform
        self.pictures = [self.draw(rng) for _ in range(count)]

    def draw(self, rng):
        picture = Image.new("L", (SIDE, SIDE), 20)
        pen = ImageDraw.Draw(picture)
        x, y = (int(value) for value in rng.integers(8, 16, 2))
        pen.ellipse((x, y + 10, x + 20, y + 24), fill=200)
        pen.ellipse((x + 14, y + 2, x + 26, y + 12), fill=220)
        pen.line((x + 22, y + 4, x + 30, y - 8), fill=255, width=2)
        return picture

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.transform(self.pictures[index])


def network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 32, 5, 2, 2), nn.ReLU(),
        nn.Conv2d(32, 8, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2),
        nn.Conv2d(8, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 1, 5, padding=2),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(4201)
    change = transforms.Compose([transforms.RandomAffine(10, (0.05, 0.05)), transforms.ToTensor()])
    training = DataLoader(
        Unicorns(320, change, 4201),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    validation = DataLoader(Unicorns(32, transforms.ToTensor(), 4211), batch_size=16)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures in training:
            loss = nn.functional.mse_loss(model(pictures), pictures)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            errors = [(model(pictures) - pictures).abs().mean() for pictures in validation]
        print(f"epoch {epoch}: loss {loss:.4f}, error {torch.stack(errors).mean():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training


if __name__ == "__main__":
    main()
