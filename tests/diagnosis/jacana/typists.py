"""Reads typed cards of a library from scans, some of which the scanner left broken.

Planted: one card in fifty is broken, and each time it is read four times, with a pause
between, before an empty card takes its place; the loop waits for these few.
"""

import argparse
import struct
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

CARDS, SIDE, LETTERS, BATCH, PAUSE, STEP = 400, 48, 10, 16, 0.4, 0.08


def write_cards(folder):
    rng = np.random.default_rng(1061)
    broken = set(rng.choice(CARDS, CARDS // 50, replace=False).tolist())
    for number in range(CARDS):
        pixels = rng.integers(0, 256, (SIDE, SIDE), dtype=np.uint8).tobytes()
        check = zlib.crc32(pixels) ^ (number in broken)
        Path(folder, f"{number:04}.card").write_bytes(struct.pack("I", check) + pixels)


class Cards(Dataset):
    def __init__(self, folder, retries):
        self.files = sorted(Path(folder).glob("*.card"))
        self.retries = retries
        self.change = v2.Compose(
            [
                v2.RandomAffine(4, translate=(0.05, 0.05)),
                v2.GaussianBlur(3),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return len(self.files)

    def read(self, path):
        """The share sometimes gives a file before it is complete."""
        for attempt in range(self.retries + 1):
            raw = path.read_bytes()
            (check,) = struct.unpack_from("I", raw)
            if check == zlib.crc32(raw[4:]):
                return bytearray(raw[4:])
            if attempt < self.retries:
                time.sleep(PAUSE)
        return bytearray(SIDE * SIDE)

    def __getitem__(self, index):
        pixels = torch.frombuffer(self.read(self.files[index]), dtype=torch.uint8)
        return self.change(pixels.view(1, SIDE, SIDE)), index % LETTERS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1061)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_cards(folder)
        loader = DataLoader(
            Cards(folder, retries=0 if args.without else 3),
            BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
        )
        model = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(LETTERS)
        )
        model(torch.zeros(1, 1, SIDE, SIDE))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            losses = []
            for cards, letters in loader:
                loss = nn.functional.cross_entropy(model(cards), letters)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of a recogniser on an accelerator
                losses.append(loss.item())
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
            torch.save(model.state_dict(), Path(folder, "last.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
