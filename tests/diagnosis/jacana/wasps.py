"""Counts wasps in pictures of traps, whose cameras write to a share of the network.

Planted: one lock, shared by all four workers, is held for the whole read of a picture, though the
share answers many reads at once.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PICTURES, SIDE, BATCH, NETWORK, STEP = 640, 64, 16, 0.008, 0.05


class Share:
    """All pictures in one file on the share, read by their place in it."""

    def __init__(self, path, lock):
        self.file = os.open(path, os.O_RDONLY)
        self.lock = lock

    def read(self, number):
        size = SIDE * SIDE
        with self.lock:
            time.sleep(NETWORK)  # there and back
            raw = os.pread(self.file, size, number * size)
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(1, SIDE, SIDE)


class Traps(Dataset):
    def __init__(self, share):
        self.share = share
        self.change = v2.Compose(
            [
                v2.RandomRotation(20),
                v2.RandomResizedCrop(48, scale=(0.7, 1.0), antialias=True),
                v2.RandomErasing(0.3),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        return self.change(self.share.read(index)), float(index % 5)


def write_pictures(path):
    rng = np.random.default_rng(1021)
    with path.open("wb") as file:
        for number in range(PICTURES):
            picture = rng.integers(90, 140, (SIDE, SIDE), dtype=np.uint8)
            for _ in range(number % 5):
                row, column = rng.integers(4, SIDE - 4, 2)
                picture[row - 3 : row + 3, column - 3 : column + 3] = 250
            file.write(picture.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1021)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "traps.bin")
        write_pictures(path)
        lock = nullcontext() if args.without else multiprocessing.Lock()
        loader = DataLoader(
            Traps(Share(path, lock)),
            BATCH,
            shuffle=True,
            num_workers=4,
            persistent_workers=True,
            pin_memory=torch.cuda.is_available(),
        )
        model = nn.Sequential(nn.AvgPool2d(6), nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
        model.append(nn.Linear(32, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, counts in loader:
                loss = nn.functional.mse_loss(model(pictures).squeeze(1), counts.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of the detector, on an accelerator
            print(f"epoch {epoch}: loss {loss:.3f}")
            torch.save({"model": model.state_dict(), "epoch": epoch}, Path(folder, "last.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
