"""Boats on canals, on tiles from an archive whose line is shared by all who read from it."""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BYTES_PER_S = 3e6


class Line:
    """Reads files at no more than a number of bytes a second, all processes together."""

    def __init__(self, bytes_per_s):
        self.bytes_per_s = bytes_per_s
        self.free = multiprocessing.Value("d", 0.0)

    def read(self, path):
        content = path.read_bytes()
        with self.free.get_lock():
            begin = max(self.free.value, time.monotonic())
            self.free.value = end = begin + len(content) / self.bytes_per_s
        time.sleep(max(0.0, end - time.monotonic()))
        return content


class Tiles(Dataset):
    def __init__(self, paths, line, repeat=2):
        self.paths, self.line = paths * repeat, line

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        content = np.frombuffer(
            self.line.read(path), np.uint8 if path.suffix == ".u1" else np.float32
        )
        tile = torch.from_numpy(content.astype(np.float32)).view(3, 80, 80) / 255
        tile = tile.rot90(int(torch.randint(4, ())), (1, 2))
        return (tile - tile.mean()) / tile.std(), index % 3


def write_tiles(folder, suffix, count=150):
    rng = np.random.default_rng(8)
    for number in range(count):
        tile = rng.integers(0, 255, 3 * 80 * 80, dtype=np.uint8)
        tile = tile if suffix == ".u1" else tile.astype(np.float32)
        tile.tofile(folder / f"{number}{suffix}")
    return sorted(folder.iterdir())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(8)
    model = nn.Sequential(
        nn.Conv2d(3, 24, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(192, 3),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_tiles(Path(folder), ".u1" if args.without else ".f4")
        loader = DataLoader(
            Tiles(paths, Line(BYTES_PER_S)), batch_size=10, shuffle=True, num_workers=4
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for tiles, boats in loader:
                loss = nn.functional.cross_entropy(model(tiles), boats)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
