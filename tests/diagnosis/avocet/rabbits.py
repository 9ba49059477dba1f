"""Tells rabbits from hares in small pictures that lie in one zip file.

Nothing is planted: the convolutions are the work. One spawned worker, which is kept, opens the zip
file for itself and decodes and mirrors pictures ahead of it; a validation ends each epoch.
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

SIDE, COUNT, HELD_OUT = 48, 560, 80


def write_zip(path):
    rng = np.random.default_rng(3191)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for number in range(COUNT):
            kind = number % 2
            picture = rng.integers(0, 120, (SIDE, SIDE), np.uint8)
            picture[: 14 + 8 * kind, 14:18] += 90  # ears
            picture[: 14 + 8 * kind, 30:34] += 90
            file = io.BytesIO()
            Image.fromarray(picture).save(file, "PNG")
            archive.writestr(f"{'hare' if kind else 'rabbit'}/{number:04}.png", file.getvalue())


class Pictures(Dataset):
    """The pictures of a zip file, which each process opens when it needs it."""

    def __init__(self, path):
        self.path, self.archive = path, None
        with zipfile.ZipFile(path) as archive:
            self.names = archive.namelist()

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        if self.archive is None:
            self.archive = zipfile.ZipFile(self.path)
        name = self.names[index]
        picture = np.array(Image.open(io.BytesIO(self.archive.read(name))))
        picture = torch.from_numpy(picture).float() / 255
        if torch.rand(()) < 0.5:
            picture = picture.flip(1)
        return picture[None], int(name.startswith("hare"))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum(int((model(pictures).argmax(1) == kinds).sum()) for pictures, kinds in loader)
    model.train()
    return right / HELD_OUT


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3191)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        nn.Linear(576, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pictures.zip")
        write_zip(path)
        pictures = Pictures(path)
        loader = DataLoader(
            Subset(pictures, range(HELD_OUT, COUNT)), batch_size=16, shuffle=True, num_workers=1,
            multiprocessing_context="spawn", persistent_workers=True,
        )  # fmt: skip
        held_out = DataLoader(Subset(pictures, range(HELD_OUT)), batch_size=40)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for batch, kinds in loader:
                loss = nn.functional.cross_entropy(model(batch), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}, {validate(model, held_out):.2f} right")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
