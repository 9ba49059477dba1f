"""Classifies land use in aerial pictures from several providers."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset
from torchvision import transforms as T

Image.MAX_IMAGE_PIXELS = None
USES = 9


def deliver(folder, name, count, side):
    """Write a provider's pictures; what is on them does not matter here."""
    rng = np.random.default_rng(side)
    place = Path(folder, name)
    place.mkdir()
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8))
        coarse.resize((side, side)).save(place / f"{number:04d}.jpg", quality=85)


class Provider(Dataset):
    def __init__(self, place, count, transform):
        self.paths = sorted(place.glob("*.jpg"))
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        path = self.paths[index % len(self.paths)]
        with Image.open(path) as picture:
            tile = self.transform(picture.convert("RGB"))
        return {"tile": tile, "use": index % USES, "path": str(path)}


def evaluate(model, tiles, uses):
    model.eval()
    with torch.no_grad():
        right = (model(tiles).argmax(1) == uses).float().mean().item()
    model.train()
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(62)
    transform = T.Compose([
        T.Resize(128), T.RandomCrop(120), T.RandomVerticalFlip(), T.ToTensor(),
        T.Normalize([0.4] * 3, [0.2] * 3),
    ])  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        deliver(folder, "town", 40, 256)
        deliver(folder, "county", 40, 224)
        deliver(folder, "state", 2, 256 if args.without else 6400)
        tiles = ConcatDataset([
            Provider(Path(folder, "town"), 400, transform),
            Provider(Path(folder, "county"), 390, transform),
            Provider(Path(folder, "state"), 10, transform),
        ])  # fmt: skip
        loader = DataLoader(
            tiles, batch_size=20, shuffle=True, num_workers=2, persistent_workers=True
        )
        model = nn.Sequential(
            nn.Conv2d(3, 12, 5, 4), nn.ReLU(), nn.Conv2d(12, 24, 3, 2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, USES),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for batch in loader:
                loss = nn.functional.cross_entropy(model(batch["tile"]), batch["use"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            right = evaluate(model, batch["tile"], batch["use"])
            print(f"epoch {epoch}: last loss {loss.item():.4f}, {right:.2f} right")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
