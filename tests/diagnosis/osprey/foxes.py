"""Recognises foxes of a garden's camera, at night and by day.

Nothing is planted: convolutions are the work. One worker opens JPEG files in memory, turns and
sharpens the pictures, which is a fourth of as much work and done at the same time.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


def make_files(count, side=160):
    rng, files = np.random.default_rng(139), []
    for _ in range(count):
        rough = Image.fromarray(rng.integers(0, 255, (20, 20, 3), np.uint8))
        out = io.BytesIO()
        rough.resize((side, side), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
        files.append(out.getvalue())
    return files


class Foxes(Dataset):
    def __init__(self, count):
        self.files, self.count = make_files(30), count
        self.transform = transforms.Compose(
            [
                transforms.RandomRotation(8, transforms.InterpolationMode.BILINEAR),
                transforms.Lambda(lambda picture: picture.filter(ImageFilter.UnsharpMask(2))),
                transforms.Resize(72),
                transforms.RandomCrop(64),
                transforms.ToTensor(),
            ]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % 30])).convert("RGB")
        return self.transform(picture), index % 30 % 9


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        )  # fmt: skip
        self.head = nn.Linear(2 * width, 9)

    def forward(self, pictures):
        return self.head(self.layers(pictures).flatten(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(139)
    loader = DataLoader(
        Foxes(480), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
