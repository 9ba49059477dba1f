"""Finds the centromeres of chromosomes on dot plots of their own repeats."""

import argparse
import subprocess
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PIECES, SIDE, WORD, BATCH = 480, 96, 6, 16
INDEX = """
import random, zlib
letters = random.Random(50)
while True:
    genome = "".join(letters.choices("ACGT", k=200_000))
    places = {}
    for place in range(0, len(genome) - 12):
        places.setdefault(zlib.crc32(genome[place : place + 12].encode()), []).append(place)
"""


class Pieces(Dataset):
    """Dot plots: where words of a piece of a chromosome are found in it again."""

    def __init__(self, transform):
        rng = np.random.default_rng(50)
        self.pieces = rng.integers(0, 4, (PIECES, SIDE + WORD))
        for piece in range(0, PIECES, 2):
            self.pieces[piece] = np.resize(self.pieces[piece, :17], SIDE + WORD)
        self.powers = 4 ** np.arange(WORD)
        self.transform = transform

    def __len__(self):
        return PIECES

    def __getitem__(self, index):
        windows = np.lib.stride_tricks.sliding_window_view(self.pieces[index], WORD)[:SIDE]
        words = windows @ self.powers
        dots = (words[:, None] == words[None]).astype(np.float32)
        return self.transform(torch.from_numpy(dots)[None]), 1.0 - index % 2


def network(channels=24):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * channels, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(50)
    torch.set_num_threads(1)
    transform = transforms.Compose([transforms.RandomCrop(88), transforms.RandomErasing(0.2)])
    loader = DataLoader(Pieces(transform), BATCH, shuffle=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    count = 0 if args.without else 3
    aside = [subprocess.Popen([sys.executable, "-c", INDEX]) for _ in range(count)]
    try:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for dots, central in loader:
                scores = model(dots)[:, 0]
                loss = nn.functional.binary_cross_entropy_with_logits(scores, central.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    finally:
        for process in aside:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
