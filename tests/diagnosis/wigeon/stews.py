"""Names the region of stews from a photograph and from the dishes that taste most like them."""

import argparse
import time

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

RECIPES, SPICES, NEAR, REGIONS, BATCH = 60_000, 3, 12, 8, 24


class Stews(Dataset):
    """The photograph of a stew, and what goes into the recipes that taste like it."""

    def __init__(self, samples, transform, tree):
        rng = np.random.default_rng(48)
        self.tastes = rng.normal(0, 1, (RECIPES, SPICES)).astype(np.float32)
        self.herbs = rng.integers(0, 2, (RECIPES, 40), np.uint8)
        self.photos = torch.randint(0, 256, (60, 3, 80, 80), dtype=torch.uint8)
        self.tree = cKDTree(self.tastes) if tree else None
        self.samples, self.transform = samples, transform

    def __len__(self):
        return self.samples

    def alike(self, recipe):
        taste = self.tastes[recipe]
        if self.tree:
            return self.tree.query(taste, NEAR)[1]
        far = np.linalg.norm(self.tastes - taste, axis=1)
        return far.argsort()[:NEAR]

    def __getitem__(self, index):
        recipe = index * 31 % RECIPES
        herbs = self.herbs[self.alike(recipe)].astype(np.float32)
        photo = self.transform(self.photos[index % len(self.photos)])
        return photo, torch.from_numpy(herbs), index % REGIONS


class Region(nn.Module):
    def __init__(self, channels=24, width=64):
        super().__init__()
        self.photo = nn.Sequential(
            nn.Conv2d(3, channels, 5, stride=2), nn.ReLU(),
            nn.Conv2d(channels, channels, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.herbs = nn.Sequential(nn.Linear(40, width), nn.ReLU(), nn.Linear(width, width))
        self.last = nn.Linear(4 * channels + width, REGIONS)

    def forward(self, photos, herbs):
        return self.last(torch.cat([self.photo(photos), self.herbs(herbs).mean(1)], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(48)
    transform = v2.Compose(
        [v2.RandomCrop(72), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
    )
    loader = DataLoader(Stews(960, transform, args.without), BATCH, shuffle=True)
    model = Region()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for photos, herbs, regions in loader:
            scores = model(photos, herbs)
            loss = nn.functional.cross_entropy(scores, regions)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == regions).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, {right} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
