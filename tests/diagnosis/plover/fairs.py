"""Counts visitors of fairs in aerial pictures, of which a local folder keeps copies.

Planted: the folder has one lock file, which a worker makes before it gets a picture and deletes
after it; the others look again every few milliseconds whether it is gone.
"""

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SIDE, STEP = 64, 0.01
PAUSE, TRANSFER = 0.003, 0.006  # between two looks, and of a picture from a distant store


class Folder:
    """Copies of pictures, which only one process at a time may change."""

    def __init__(self, path, whole):
        self.path, self.whole = Path(path), whole

    @contextlib.contextmanager
    def alone(self, name):
        lock = self.path / ("folder.lock" if self.whole else f"{name}.lock")
        while True:
            try:
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
                break
            except FileExistsError:
                time.sleep(PAUSE)
        try:
            yield
        finally:
            lock.unlink()

    def get(self, name, make):
        copy = self.path / f"{name}.bytes"
        with self.alone(name):
            time.sleep(TRANSFER)
            copy.write_bytes(make().tobytes())
        return np.frombuffer(copy.read_bytes(), np.uint8).reshape(SIDE, SIDE)


class Fairs(Dataset):
    def __init__(self, folder, count):
        self.folder, self.count = folder, count
        self.base = np.random.default_rng(569).integers(0, 256, (SIDE, SIDE), np.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = self.folder.get(index, lambda: np.roll(self.base, index, 1))
        return torch.from_numpy(picture.copy()).float() / 255, float(index % 50)


class Accelerator:
    """Takes some time for each batch, and no core."""

    def train(self, pictures, visitors):
        time.sleep(STEP)
        return (pictures.mean((1, 2)) * 50 - visitors).abs().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(569)
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path, whole=not args.without)
        loader = DataLoader(
            Fairs(folder, 440), batch_size=8, shuffle=True, num_workers=4, persistent_workers=True
        )
        accelerator = Accelerator()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            losses = [accelerator.train(*batch) for batch in loader]
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
