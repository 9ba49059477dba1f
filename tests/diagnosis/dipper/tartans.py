"""Assigns tartans to clans, in the colours of six yarns, as weavers see them."""

import argparse
import random
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLOTHS, SIDE, CLANS, BATCH = 960, 112, 15, 16
YARNS = [(20, 30, 90), (150, 20, 30), (20, 90, 40), (240, 235, 220), (15, 15, 15), (230, 190, 40)]


class Cloths(Dataset):
    """A photo of a cloth, each thread of which is taken for the nearest yarn."""

    def __init__(self, whole):
        self.whole = whole

    def __len__(self):
        return CLOTHS

    @staticmethod
    def cloth(index):
        rng = random.Random(index % CLANS)
        cloth = Image.new("RGB", (SIDE, SIDE), YARNS[index % 3])
        pen = ImageDraw.Draw(cloth)
        for _ in range(9):
            at, yarn = rng.randrange(SIDE), rng.choice(YARNS)
            pen.line((0, at, SIDE, at), yarn, 5)
            pen.line((at, 0, at, SIDE), yarn, 5)
        light = Image.effect_noise((SIDE, SIDE), 60).convert("RGB")
        return Image.blend(cloth, light, 0.2)

    def yarns(self, cloth):
        if self.whole:
            pixels = np.asarray(cloth, dtype=np.int32)[:, :, None]
            far = ((pixels - np.array(YARNS, dtype=np.int32)) ** 2).sum(-1)
            return Image.fromarray(np.array(YARNS, dtype=np.uint8)[far.argmin(-1)])
        woven = Image.new("RGB", cloth.size)
        for row in range(SIDE):
            for column in range(SIDE):
                red, green, blue = cloth.getpixel((column, row))
                far = [(red - r) ** 2 + (green - g) ** 2 + (blue - b) ** 2 for r, g, b in YARNS]
                woven.putpixel((column, row), YARNS[far.index(min(far))])
        return woven

    def __getitem__(self, index):
        woven = np.asarray(self.yarns(self.cloth(index)), dtype=np.float32)
        return torch.from_numpy(woven / 255).permute(2, 0, 1), index % CLANS


def network(channels=16):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * channels, CLANS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(74)
    loader = DataLoader(
        Cloths(whole=args.without),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for cloths, clans in loader:
            loss = nn.functional.cross_entropy(model(cloths), clans)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
