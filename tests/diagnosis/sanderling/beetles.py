"""Sorts pictures of beetles that lie in one compressed archive of numpy.

Planted: each sample asks the archive for its pictures, which decompresses all of them each time to
take one.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PICTURES, SIDE, KINDS = 240, 32, 7


def write_archive(path):
    rng = np.random.default_rng(1033)
    kinds = rng.integers(0, KINDS, PICTURES)
    pictures = rng.integers(0, 60, (PICTURES, SIDE, SIDE, 3), np.uint8)
    pictures[..., 1] += (kinds * 20).astype(np.uint8)[:, None, None]
    np.savez_compressed(path, pictures=pictures, kinds=kinds)


class Beetles(Dataset):
    def __init__(self, path, at_once):
        self.path, self.at_once = path, at_once
        self.archive = None
        self.transform = v2.Compose(
            [
                v2.ToImage(),
                v2.RandomRotation(20),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.2, 0.2, 0.2, 0.05),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def open(self):
        archive = np.load(self.path)
        return dict(archive) if self.at_once else archive

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        if self.archive is None:
            self.archive = self.open()  # once in each worker
        picture = self.archive["pictures"][index]
        return self.transform(picture), int(self.archive["kinds"][index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1033)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "beetles.npz")
        write_archive(path)
        loader = DataLoader(
            Beetles(path, args.without), batch_size=12, shuffle=True, num_workers=2,
            persistent_workers=True,
        )  # fmt: skip
        model = nn.Sequential(
            nn.Conv2d(3, 24, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 32, 3), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 16, KINDS),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
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
