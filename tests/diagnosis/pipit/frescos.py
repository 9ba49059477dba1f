"""Finds cracks in frescos, in patches that are cut at random out of large scans.

Planted: a cache keeps four of thirty-two scans, and patches are asked for in random order, so that
nearly each decodes its scan again.
"""

import argparse
import io
import random
import tempfile
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision.transforms import v2

SCANS, LARGE, PATCH, PATCHES, BATCH, STEP = 32, 1536, 96, 640, 16, 0.05


def write(folder):
    rng = np.random.default_rng(37)
    noise = Image.fromarray(rng.integers(256, size=(128, 128, 3), dtype=np.uint8))
    for number in range(SCANS):
        scan = noise.rotate(11 * number).resize((LARGE, LARGE), Image.Resampling.BICUBIC)
        scan.save(folder / f"{number}.jpg", quality=88)


class Scans:
    def __init__(self, folder, kept):
        self.folder = folder
        self.scan = lru_cache(kept)(self.read)

    def read(self, number):
        packed = io.BytesIO((self.folder / f"{number}.jpg").read_bytes())
        return np.asarray(Image.open(packed).convert("RGB"))

    def patch(self, number):
        scan = self.scan(number)
        top, left = (random.randrange(LARGE - PATCH) for _ in range(2))
        return torch.from_numpy(scan[top : top + PATCH, left : left + PATCH].copy())


class Patches(IterableDataset):
    """Patches out of all scans in random order, shared out among the workers."""

    def __init__(self, scans):
        self.scans = scans
        self.change = v2.Compose(
            [
                v2.RandomHorizontalFlip(),
                v2.RandomVerticalFlip(),
                v2.ColorJitter(0.1, 0.1),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __iter__(self):
        info = get_worker_info()
        share = PATCHES // info.num_workers if info else PATCHES
        for _ in range(share):
            patch = self.scans.patch(random.randrange(SCANS)).permute(2, 0, 1)
            yield self.change(patch), int(patch.float().mean() > 127)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(37)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        loader = DataLoader(
            Patches(Scans(folder, SCANS if args.without else 4)),
            BATCH,
            num_workers=2,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
        model = nn.Sequential(
            nn.Conv2d(3, 16, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(64, 2),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for patches, cracks in loader:
                loss = nn.functional.cross_entropy(model(patches), cracks)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's work
            torch.save(model.state_dict(), folder / "last.pt")
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
