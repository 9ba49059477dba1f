"""Sharpens photos of raspberries with a small network, and compares features of the results."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PHOTOS, SIDE, BATCH = 160, 48, 8


class Photos(Dataset):
    """Pairs of a blurred and a sharp crop."""

    def __init__(self):
        rng = np.random.default_rng(137)
        self.photos = rng.integers(0, 256, (PHOTOS, 3, SIDE + 8, SIDE + 8), dtype=np.uint8)
        self.crop = v2.Compose([v2.RandomCrop(SIDE), v2.ToDtype(torch.float32, scale=True)])

    def __len__(self):
        return PHOTOS

    def __getitem__(self, index):
        sharp = self.crop(torch.from_numpy(self.photos[index]))
        blurred = nn.functional.avg_pool2d(sharp, 3, stride=1, padding=1)
        return blurred, sharp


class Features(nn.Module):
    """The lower layers of a VGG."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 48, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(48, 48, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(48, 96, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(96, 96, 3, padding=1),
        )
        self.requires_grad_(False)

    def forward(self, result, sharp):
        return nn.functional.l1_loss(self.layers(result), self.layers(sharp))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(137)
    torch.set_num_threads(1)
    loader = DataLoader(
        Photos(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Conv2d(3, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 3, 3, padding=1))
    features = None if args.without else Features()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for blurred, sharp in loader:
            result = model(blurred)
            loss = nn.functional.l1_loss(result, sharp)
            if features:
                loss = loss + 0.1 * features(result, sharp)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
