"""Dates trilobites by their outline in a slab of slate."""

import argparse
import random
import time

import torch
from PIL import Image, ImageChops, ImageDraw, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional

SLABS, SIDE, AGES, BATCH = 480, 64, 7, 16


class Slabs(Dataset):
    """A slab from above, and how long the edges of what lies in it are."""

    def __init__(self, whole):
        self.whole = whole

    def __len__(self):
        return SLABS

    @staticmethod
    def slab(index):
        rng = random.Random(index)
        slab = Image.effect_noise((4 * SIDE, 4 * SIDE), 20)
        shell = Image.new("L", slab.size, 0)
        width = 60 + 10 * (index % AGES)
        ImageDraw.Draw(shell).ellipse((40, 50, 40 + width, 190), fill=160)
        shell = shell.rotate(rng.randrange(360), Image.Resampling.BICUBIC)
        return ImageChops.add(slab, shell).filter(ImageFilter.GaussianBlur(2)).resize((SIDE, SIDE))

    def edges(self, inside):
        if self.whole:
            return (inside[:, 1:] != inside[:, :-1]).sum() + (inside[1:] != inside[:-1]).sum()
        edges = torch.tensor(0)
        for row in range(SIDE):
            for column in range(SIDE):
                if column and inside[row, column] != inside[row, column - 1]:
                    edges += 1
                if row and inside[row, column] != inside[row - 1, column]:
                    edges += 1
        return edges

    def __getitem__(self, index):
        slab = functional.to_tensor(self.slab(index))
        edges = self.edges(slab[0] > 0.75)
        return slab, edges.float()[None] / SIDE, index % AGES


class Age(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        )  # fmt: skip
        self.last = nn.Linear(32 * channels + 1, AGES)

    def forward(self, slabs, edges):
        return self.last(torch.cat([self.body(slabs), edges], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(72)
    loader = DataLoader(Slabs(whole=args.without), BATCH, shuffle=True)
    model = Age()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for slabs, edges, ages in loader:
            loss = nn.functional.cross_entropy(model(slabs, edges), ages)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
