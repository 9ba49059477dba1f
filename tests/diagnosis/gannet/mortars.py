"""Predicts the strength of mortars from scans in one large file, of which little is kept in memory.

Planted: after each scan the reader tells the kernel to forget what it has read, so that each scan
comes from the disk again.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCANS, VALUES = 400, 128 * 1024  # float32, half a megabyte each


def write(path):
    rng = np.random.default_rng(463)
    with path.open("wb") as file:
        for _ in range(SCANS):
            file.write(rng.random(VALUES, dtype=np.float32).tobytes())
        file.flush()
        os.fsync(file.fileno())


class Reader:
    """Reads scans; a polite one leaves nothing of them in the page cache."""

    def __init__(self, path, polite):
        self.path, self.polite, self.file = path, polite, None

    def read(self, number):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
            os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)
        place, size = number * VALUES * 4, VALUES * 4
        scan = np.frombuffer(os.pread(self.file, size, place), np.float32)
        if self.polite:
            os.posix_fadvise(self.file, place, size, os.POSIX_FADV_DONTNEED)
        return scan


class Scans(Dataset):
    def __init__(self, reader, repeats):
        self.reader, self.repeats = reader, repeats

    def __len__(self):
        return SCANS * self.repeats

    def __getitem__(self, index):
        scan = self.reader.read(index % SCANS)
        pooled = scan.reshape(256, -1).max(1) - scan.reshape(256, -1).min(1)
        return torch.from_numpy(pooled), float(scan[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(463)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scans.f32")
        write(path)
        reader = Reader(path, polite=not args.without)
        if reader.polite:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        loader = DataLoader(
            Scans(reader, 3), batch_size=12, shuffle=True, num_workers=2, persistent_workers=True
        )
        model = nn.Sequential(
            nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for scans, strengths in loader:
                loss = nn.functional.l1_loss(model(scans).squeeze(1), strengths.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
