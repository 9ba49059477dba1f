"""Finds kingfishers on a river bank: where in a photo the bird sits."""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset

PHOTOS, KEPT, SIDE, BATCH = 1280, 80, 88, 32


class Banks(Dataset):
    """Photos that lie in memory as JPEG, with the bird's place as parts of the side."""

    def __init__(self):
        rng = np.random.default_rng(75)
        self.photos, self.places = [], rng.random((KEPT, 2)).astype(np.float32)
        for _ in range(KEPT):
            water = Image.fromarray(rng.integers(0, 200, (11, 11, 3), dtype=np.uint8))
            file = io.BytesIO()
            water.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file, "JPEG")
            self.photos.append(file.getvalue())

    def __len__(self):
        return PHOTOS

    def __getitem__(self, index):
        photo = Image.open(io.BytesIO(self.photos[index % KEPT])).convert("RGB")
        place = torch.from_numpy(self.places[index % KEPT])
        if torch.rand(()) < 0.5:
            photo, place = ImageOps.mirror(photo), torch.stack([1 - place[0], place[1]])
        pixels = torch.from_numpy(np.array(photo)).permute(2, 0, 1)
        return pixels.float() / 255, place


def block(before, channels):
    return nn.Sequential(
        nn.Conv2d(before, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(75)
    loader = DataLoader(
        Banks(),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    pool, head = nn.MaxPool2d(2), nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())
    model = nn.Sequential(block(3, 24), pool, block(24, 48), pool, head, nn.Linear(768, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for photos, places in loader:
            loss = nn.functional.smooth_l1_loss(model(photos), places)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
