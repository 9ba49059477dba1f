"""Marks worn molars on slices through scans of jaws."""

import argparse
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

JAWS, SIDE, SLAB, BATCH = 6, 96, 12, 12


class Store:
    """A cube of numbers in packed boxes, each in a file, as array stores keep them."""

    def __init__(self, folder, box):
        self.folder, self.box = Path(folder), box

    def path(self, corner):
        return self.folder / ".".join(str(place) for place in corner)

    def write(self, cube):
        self.folder.mkdir()
        for corner in np.ndindex(*(SIDE // size for size in self.box)):
            begin = [place * size for place, size in zip(corner, self.box, strict=True)]
            part = cube[tuple(slice(b, b + s) for b, s in zip(begin, self.box, strict=True))]
            self.path(corner).write_bytes(zlib.compress(part.tobytes(), 3))

    def across(self, place):
        """The slice across the jaw at a place of its third axis."""
        rows, columns, depth = (SIDE // size for size in self.box)
        box, inside = divmod(place, self.box[2])
        assert box < depth
        whole = np.empty((SIDE, SIDE), np.uint8)
        for row, column in np.ndindex(rows, columns):
            raw = zlib.decompress(self.path((row, column, box)).read_bytes())
            part = np.frombuffer(raw, np.uint8).reshape(self.box)[:, :, inside]
            height, width = part.shape
            whole[row * height :, column * width :][:height, :width] = part
        return whole


def scan(rng):
    coarse = rng.integers(0, 255, (12, 12, 12), np.uint8)
    return np.kron(coarse, np.ones((8, 8, 8), np.uint8)) ^ rng.integers(0, 4, (SIDE,) * 3, np.uint8)


class Slices(Dataset):
    def __init__(self, stores, transform):
        self.stores, self.transform = stores, transform

    def __len__(self):
        return len(self.stores) * SIDE

    def __getitem__(self, index):
        jaw, place = divmod(index, SIDE)
        cut = torch.from_numpy(self.stores[jaw].across(place))
        return self.transform(cut[None].float() / 255), place * 4 // SIDE


def network(channels=24):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, channels, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        nn.Linear(9 * channels, 4),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(54)
    rng = np.random.default_rng(54)
    box = (SIDE, SIDE, 1) if args.without else (SLAB, SLAB, SIDE // 2)
    with tempfile.TemporaryDirectory() as folder:
        stores = [Store(Path(folder) / f"jaw{jaw}", box) for jaw in range(JAWS)]
        for store in stores:
            store.write(scan(rng))
        transform = transforms.Compose(
            [
                transforms.RandomRotation(8, transforms.InterpolationMode.BILINEAR),
                transforms.GaussianBlur(5),
                transforms.RandomCrop(88),
                transforms.Normalize([0.5], [0.25]),
            ]
        )
        loader = DataLoader(Slices(stores, transform), BATCH, shuffle=True)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for cuts, parts in loader:
                loss = nn.functional.cross_entropy(model(cuts), parts)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
