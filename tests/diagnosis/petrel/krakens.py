"""Tells drawings of krakens from others; the drawings are PNG files of a collection.

Planted: one drawing of 60 is a scan of 12 megapixels, which is decoded whole and made small.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

SIDE = 64


def draw(folder, large, count=240):
    """Write the drawings; each sixtieth is `large` pixels wide and high."""
    rng = np.random.default_rng(263)
    for number in range(count):
        kind = Path(folder, "kraken" if number % 2 else "other")
        kind.mkdir(exist_ok=True)
        lines = Image.fromarray(rng.integers(0, 256, (24, 24, 3), np.uint8))
        side = large if number % 60 == 17 else 150
        lines.resize((side, side), Image.Resampling.NEAREST).save(
            kind / f"{number:03}.png", compress_level=1
        )


def build_model():
    layers = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 48)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(263)
    transform = v2.Compose(
        [
            v2.Resize((SIDE, SIDE)),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        draw(folder, large=150 if args.without else 3500)
        drawings = ImageFolder(folder, transform)
        loader = DataLoader(
            drawings, batch_size=12, shuffle=True, num_workers=2, persistent_workers=True
        )
        model = build_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, kinds in loader:
                loss = nn.functional.cross_entropy(model(pictures), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
