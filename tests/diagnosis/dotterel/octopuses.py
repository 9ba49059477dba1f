"""Finds octopuses under water, in pictures of a zip file that other programs add to.

Planted: each sample takes an exclusive lock on a file beside the zip file and keeps it while it
reads from the drive, so only one of three workers reads at a time. A shared lock would do.
"""

import argparse
import fcntl
import io
import tempfile
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PICTURES, SIDE, DRIVE = 300, 72, 0.012


def fill(path):
    rng = np.random.default_rng(4129)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(PICTURES):
            picture = rng.integers(0, 180, (SIDE, SIDE, 3), dtype=np.uint8)
            picture[20:40, 20:40] += np.uint8(60 * (number % 2))
            buffer = io.BytesIO()
            Image.fromarray(picture).save(buffer, "JPEG")
            archive.writestr(f"{number:04}.jpg", buffer.getvalue())


@contextmanager
def locked(path, how):
    with open(path, "a") as file:
        fcntl.flock(file, how)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


class Octopuses(Dataset):
    def __init__(self, path, how):
        self.path, self.how, self.archive = path, how, None
        self.change = v2.Compose(
            [
                v2.PILToTensor(),
                v2.RandomCrop(64),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        with locked(f"{self.path}.lock", self.how):
            if self.archive is None:
                self.archive = zipfile.ZipFile(self.path)
            data = self.archive.read(f"{index:04}.jpg")
            time.sleep(DRIVE)  # the drive is on the network
            picture = Image.open(io.BytesIO(data)).convert("RGB")
        return self.change(picture), index % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(4129)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sea.zip")
        fill(path)
        loader = DataLoader(
            Octopuses(path, fcntl.LOCK_SH if args.without else fcntl.LOCK_EX),
            batch_size=10,
            shuffle=True,
            num_workers=3,
            persistent_workers=True,
            multiprocessing_context="spawn",
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, there in loader:
                loss = nn.functional.cross_entropy(model(pictures), there)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
