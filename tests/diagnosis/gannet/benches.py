"""Finds worn places on benches in pictures.

Nothing is planted: a network that keeps its resolution is the work. One worker turns, blurs and
sharpens small pictures ahead of it, which looks like much and takes little.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 40


class Benches(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(601)
        self.pictures = rng.integers(0, 255, (32, SIDE, SIDE, 3), np.uint8)
        self.worn = (rng.random((32, SIDE, SIDE)) < 0.2).astype(np.float32)
        self.count = count

    def __len__(self):
        return self.count

    def change(self, picture, number):
        picture = picture.rotate(90 * (number % 4)).filter(ImageFilter.GaussianBlur(1))
        picture = ImageEnhance.Sharpness(picture).enhance(1.5)
        return ImageEnhance.Brightness(picture).enhance(0.8 + 0.4 * (number % 7) / 7)

    def __getitem__(self, index):
        picture = self.change(Image.fromarray(self.pictures[index % 32]), index)
        array = torch.from_numpy(np.asarray(picture, np.float32) / 255).permute(2, 0, 1)
        worn = np.rot90(self.worn[index % 32], index % 4).copy()
        return array.contiguous(), torch.from_numpy(worn)


class Places(nn.Module):
    """Convolutions at full resolution, with wider and wider holes."""

    def __init__(self, width=32):
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.wider = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=holes, dilation=holes) for holes in (1, 2, 4, 8)
        )
        self.leave = nn.Conv2d(width, 1, 1)

    def forward(self, pictures):
        hidden = self.enter(pictures)
        for layer in self.wider:
            hidden = hidden + torch.relu(layer(hidden))
        return self.leave(hidden).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(601)
    loader = DataLoader(
        Benches(640), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Places()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, worn in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(pictures), worn)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
