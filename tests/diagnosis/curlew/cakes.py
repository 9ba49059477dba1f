"""Judges cakes by their pictures, most of which were taken with telephones.

Planted: one picture in fifty is a scan of a whole page as it was printed, which takes far longer
to decode than all others of its batch.
"""

import argparse
import io
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

COUNT, EVERY, SIDE, PAGE = 500, 50, 64, (2900, 2200)


def write_pictures(folder, small):
    rng = np.random.default_rng(821)
    page = Image.fromarray(rng.integers(0, 256, (40, 30, 3), np.uint8)).resize(PAGE[::-1])
    scan = Image.fromarray(np.asarray(page) ^ rng.integers(0, 16, (*PAGE, 1), np.uint8))
    if small:
        scan.thumbnail((160, 160))
    printed = io.BytesIO()
    scan.save(printed, "png", compress_level=1)
    paths = []
    for number in range(COUNT):
        if number % EVERY == 17:
            paths.append(Path(folder, f"{number}.png"))
            paths[-1].write_bytes(printed.getvalue())
        else:
            cake = rng.integers(0, 256, (8, 8, 3), np.uint8)
            paths.append(Path(folder, f"{number}.jpg"))
            Image.fromarray(cake).resize((160, 120)).save(paths[-1])
    return paths


class Cakes(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.transform = v2.Compose(
            [
                v2.PILToTensor(),
                v2.RandomResizedCrop(SIDE, scale=(0.6, 1.0), antialias=True),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with Image.open(self.paths[index]) as picture:
            return self.transform(picture.convert("RGB")), index % 3


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(821)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Cakes(write_pictures(folder, args.without)), batch_size=10, shuffle=True,
            num_workers=2, persistent_workers=True,
        )  # fmt: skip
        model = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3),
        )  # fmt: skip
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, marks in loader:
                loss = nn.functional.cross_entropy(model(pictures), marks)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
