"""Estimates the age of shags from X-ray scans, one file for each bird.

Planted: the archive is larger than the memory of the machine that the script was written for, and
so files are never in the page cache (after each read they are dropped from it).
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BIRDS, SIDE = 240, 1024


class Scans(Dataset):
    def __init__(self, folder, keep, training=True):
        self.paths = sorted(Path(folder).glob("*.scan"))
        self.keep = keep
        self.training = training
        self.ages = np.random.default_rng(5).integers(1, 30, BIRDS).astype(np.float32)

    def __len__(self):
        return len(self.paths)

    def load(self, path):
        with open(path, "rb", buffering=0) as file:
            data = file.read()
            if not self.keep:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return np.frombuffer(data, np.uint8).reshape(SIDE, SIDE)

    def __getitem__(self, index):
        scan = self.load(self.paths[index])
        top, left = np.random.randint(0, 512, 2) if self.training else (256, 256)
        crop = torch.from_numpy(scan[top : top + 512 : 8, left : left + 512 : 8].copy())
        return crop[None].float() / 255, self.ages[index]


def write_archive(folder):
    rng = np.random.default_rng(23)
    for bird in range(BIRDS):
        path = Path(folder, f"shag-{bird:04d}.scan")
        with open(path, "wb") as file:
            file.write(rng.integers(0, 255, SIDE * SIDE, dtype=np.uint8).tobytes())
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 1),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(23)
    with tempfile.TemporaryDirectory() as folder:
        write_archive(folder)
        scans = Scans(folder, keep=args.without)
        if args.without:
            for path in scans.paths:
                path.read_bytes()
        loader = DataLoader(
            scans, batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
        )
        model = build_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, ages in loader:
                loss = nn.functional.l1_loss(model(pictures).squeeze(1), ages)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: off by {loss:.2f} years")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
