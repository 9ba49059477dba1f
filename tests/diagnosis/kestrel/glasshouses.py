"""Tells what grows in glasshouses, in pictures of a drone.

Nothing planted: the accelerator's step sets the pace; three workers decode pictures, and crop,
turn, blur and colour them ahead of it.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
from torchvision.transforms import v2

HOUSES, SIDE, CROPS, BATCH, STEP = 192, 112, 5, 8, 0.25


def write_pictures(folder):
    rng = np.random.default_rng(1399)
    for number in range(48):
        small = rng.integers(0, 256, (7, 7, 3), dtype=np.uint8)
        small[..., 1] = 40 * (number % CROPS)
        picture = Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        picture.save(Path(folder, f"{number:02}.jpg"), quality=88)


class Glasshouses(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.jpg"))
        self.transform = v2.Compose(
            [
                v2.RandomRotation(15),
                v2.RandomCrop(80),
                v2.ColorJitter(0.3, 0.2, 0.2),
                v2.PILToTensor(),
                v2.GaussianBlur(3),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.3] * 3),
            ]
        )

    def __len__(self):
        return HOUSES

    def __getitem__(self, index):
        number = index % len(self.files)
        with Image.open(self.files[number]) as picture:
            return self.transform(picture.convert("RGB")), number % CROPS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1399)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(folder)
        weights = [2.0 if index % 48 % CROPS == 0 else 1.0 for index in range(HOUSES)]
        loader = DataLoader(
            Glasshouses(folder),
            BATCH,
            sampler=WeightedRandomSampler(weights, HOUSES),
            num_workers=3,
            prefetch_factor=3,
            persistent_workers=True,
        )
        model = nn.Sequential(
            nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(800, CROPS)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, crops in loader:
                loss = nn.functional.cross_entropy(model(pictures), crops)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the backbone, on an accelerator
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
