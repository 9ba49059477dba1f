"""Tells cartoonists apart by a drawing and the words below it."""

import argparse
import copy
import random
import time

import torch
from PIL import Image, ImageDraw, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional

CARTOONS, SIDE, WORDS, BELOW, ARTISTS, BATCH = 960, 80, 250_000, 12, 20, 16


class Cartoons(Dataset):
    def __len__(self):
        return CARTOONS

    def __getitem__(self, index):
        rng = random.Random(index)
        cartoon = Image.new("L", (2 * SIDE, 2 * SIDE), 250)
        pen = ImageDraw.Draw(cartoon)
        for _ in range(20 + index % ARTISTS):
            pen.line([rng.randrange(2 * SIDE) for _ in range(6)], fill=rng.randrange(90), width=3)
        cartoon = cartoon.rotate(rng.uniform(-5, 5), Image.Resampling.BILINEAR, fillcolor=250)
        cartoon = ImageOps.autocontrast(cartoon.resize((SIDE, SIDE), Image.Resampling.LANCZOS))
        words = torch.tensor([rng.randrange(WORDS) for _ in range(BELOW)])
        return functional.to_tensor(cartoon), words, index % ARTISTS


class Artist(nn.Module):
    """Looks at the drawing; what words mean was learnt from newspapers and stays."""

    def __init__(self, channels=24, width=160):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, width, mode="mean").requires_grad_(False)
        self.body = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        )  # fmt: skip
        self.last = nn.Linear(18 * channels + width, ARTISTS)

    def forward(self, cartoons, words):
        return self.last(torch.cat([self.body(cartoons), self.words(words)], 1))


@torch.no_grad()
def smooth(mean, model, decay=0.99):
    """The mean of the models so far, with the newest one in it."""
    newest = copy.deepcopy(model)
    for new, old in zip(newest.parameters(), mean.parameters(), strict=True):
        if new.requires_grad:
            new.lerp_(old, decay)
    return newest


@torch.no_grad()
def follow(mean, model, decay=0.99):
    for new, old in zip(model.parameters(), mean.parameters(), strict=True):
        if new.requires_grad:
            old.lerp_(new, 1 - decay)
    return mean


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(73)
    loader = DataLoader(
        Cartoons(),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Artist()
    mean = copy.deepcopy(model)
    update = follow if args.without else smooth
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for cartoons, words, artists in loader:
            loss = nn.functional.cross_entropy(model(cartoons, words), artists)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = update(mean, model)
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
