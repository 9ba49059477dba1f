"""Tells the ages of haddocks from pictures of their ear bones.

Planted: the archive of the pictures is opened, and its list of members read, for each sample.
"""

import argparse
import io
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms as T

AGES = 8


def collect(path, count=2600, kinds=20):
    """Write an archive of small pictures, a few of them under many names."""
    rng = np.random.default_rng(5)
    pictures = []
    for _ in range(kinds):
        coarse = Image.fromarray(rng.integers(0, 255, (12, 12), dtype=np.uint8))
        buffer = io.BytesIO()
        coarse.resize((96, 96)).save(buffer, "PNG")
        pictures.append(buffer.getvalue())
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(count):
            archive.writestr(f"bones/{number:05d}.png", pictures[number % kinds])


class Bones(Dataset):
    def __init__(self, path, transform, keep):
        self.path, self.transform, self.keep = path, transform, keep
        self.archive = None
        with zipfile.ZipFile(path) as archive:
            self.names = archive.namelist()

    def __len__(self):
        return len(self.names)

    def read(self, name):
        if not self.keep:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(name)
        if self.archive is None:
            self.archive = zipfile.ZipFile(self.path)
        return self.archive.read(name)

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.read(self.names[index])))
        return self.transform(picture), index % AGES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    transform = T.Compose([
        T.RandomRotation(20), T.RandomResizedCrop(80, (0.7, 1.0)), T.ToTensor(),
        T.Normalize([0.5], [0.25]),
    ])  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bones.zip")
        collect(path)
        bones = Bones(path, transform, keep=args.without)
        train = Subset(bones, range(0, len(bones), 10))
        loader = DataLoader(
            train, batch_size=20, shuffle=True, num_workers=2, persistent_workers=True
        )
        model = nn.Sequential(
            nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, AGES),
        )  # fmt: skip
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, ages in loader:
                loss = nn.functional.cross_entropy(model(pictures), ages)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
