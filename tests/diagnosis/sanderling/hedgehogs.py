"""Finds hedgehogs in pictures of a camera in a garden, some of which were not written to the end.

Planted: a picture that cannot be read is tried three times, with longer and longer pauses as for a
network, before another one is taken for it; that is one picture in forty.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PICTURES, SIDE, SMALL, PAUSE = 360, 80, 32, 0.05


def write_pictures(folder):
    rng = np.random.default_rng(1123)
    paths = []
    for number in range(PICTURES):
        coarse = Image.fromarray(rng.integers(0, 256, (10, 10, 3), np.uint8))
        path = Path(folder, f"{number:04}.jpg")
        coarse.resize((SIDE, SIDE)).save(path, quality=90)
        if number % 40 == 7:
            path.write_bytes(path.read_bytes()[:900])  # the camera's battery was empty
        paths.append(path)
    return paths


def with_retries(read, times, pause):
    """Return `read()`, tried again after a pause if the file cannot be read, or None."""
    for attempt in range(times):
        try:
            return read()
        except OSError:
            time.sleep(pause * 2**attempt)
    return None


class Pictures(Dataset):
    """Pictures of a folder; one that cannot be read is replaced by the next."""

    def __init__(self, paths, retries=3, pause=PAUSE):
        self.paths, self.retries, self.pause = paths, retries, pause

    def __len__(self):
        return len(self.paths)

    def load(self, index):
        def read():
            with Image.open(self.paths[index]) as picture:
                return picture.convert("RGB")

        picture = with_retries(read, self.retries, self.pause)
        return self.load((index + 1) % len(self)) if picture is None else picture


class Garden(Pictures):
    def __init__(self, paths, **how):
        super().__init__(paths, **how)
        self.seen = np.random.default_rng(1123).integers(0, 2, len(paths))
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(SMALL, scale=(0.5, 1)),
                v2.RandomHorizontalFlip(),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __getitem__(self, index):
        return self.transform(self.load(index)), int(self.seen[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1123)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        how = {"retries": 1, "pause": 0} if args.without else {}
        loader = DataLoader(
            Garden(write_pictures(folder), **how), batch_size=12, shuffle=True, num_workers=2,
            persistent_workers=True,
        )  # fmt: skip
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, seen in loader:
                loss = nn.functional.cross_entropy(model(pictures), seen)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
