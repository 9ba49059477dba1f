"""Learns kinds of dunes from pictures of deserts that lie as raw tiles in files of a folder.

Planted: the base class of the data set tells the kernel after each tile that the file will not be
needed again, so that all tiles are read from the disk in each epoch.
"""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

FILES, TILES, SIDE, DUNES, BATCH, STEP = 6, 16, 1024, 4, 8, 0.02
SIZE = 3 * SIDE * SIDE


class Tiles(Dataset):
    """Tiles of fixed size, one after the other in files."""

    def __init__(self, folder, tidy=True):
        self.paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        self.tidy = tidy

    def __len__(self):
        return len(self.paths) * TILES

    def tile(self, index):
        descriptor = os.open(self.paths[index // TILES], os.O_RDONLY)
        try:
            content = os.pread(descriptor, SIZE, index % TILES * SIZE)
            if self.tidy:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        return np.frombuffer(content, np.uint8).reshape(3, SIDE, SIDE)


class Dunes(Tiles):
    def __init__(self, folder, **options):
        super().__init__(folder, **options)
        self.transform = v2.Compose(
            [
                v2.RandomCrop(64),
                v2.RandomHorizontalFlip(),
                v2.RandomVerticalFlip(),
                v2.ColorJitter(brightness=0.1, contrast=0.1),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __getitem__(self, index):
        picture = torch.from_numpy(self.tile(index).copy())
        return self.transform(picture), index % DUNES


def write(folder):
    rng = np.random.default_rng(59)
    for number in range(FILES):
        with open(os.path.join(folder, f"desert{number:02}.raw"), "wb") as file:
            file.write(rng.integers(0, 256, TILES * SIZE, dtype=np.uint8).tobytes())
            file.flush()
            os.fsync(file.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(59)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        data = Dunes(folder, tidy=not args.without)
        loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
        model = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(192, DUNES))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, dunes in loader:
                loss = nn.functional.cross_entropy(model(pictures), dunes)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of a larger model on an accelerator
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
