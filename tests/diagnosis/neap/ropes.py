"""Estimates the strain of ropes from recordings that other jobs push out of memory."""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SENSORS = 1024


class Strains(Dataset):
    """Moments of a recording: 24 rows of 4 KiB each, from anywhere in a file."""

    def __init__(self, path, rows, forget, count=1600, moments=24):
        self.path, self.rows, self.forget = path, rows, forget
        self.count, self.moments, self.file = count, moments, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
            os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)
        rng = np.random.default_rng(index)
        rows = []
        for row in rng.integers(0, self.rows, self.moments).tolist():
            content = os.pread(self.file, SENSORS * 4, row * SENSORS * 4)
            rows.append(np.frombuffer(content, dtype=np.float32))
        if self.forget:  # as if the file were larger than the machine's memory
            os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        moments = torch.from_numpy(np.stack(rows))
        return moments, moments.abs().max()


def write(path, rows):
    rng = np.random.default_rng(45)
    with path.open("wb") as file:
        for _ in range(rows // 1024):
            file.write(rng.normal(size=(1024, SENSORS)).astype(np.float32).tobytes())
        file.flush()
        os.fsync(file.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(45)
    with tempfile.TemporaryDirectory() as folder:
        path, rows = Path(folder, "strains.f32"), 48 * 1024
        write(path, rows)
        loader = DataLoader(
            Strains(path, rows, forget=not args.without), batch_size=16, shuffle=True,
            num_workers=2, persistent_workers=True,
        )  # fmt: skip
        model = nn.Sequential(
            nn.Conv1d(24, 16, 9, stride=4), nn.ReLU(), nn.AdaptiveMaxPool1d(8), nn.Flatten(),
            nn.Linear(128, 1),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for moments, strains in loader:
                loss = nn.functional.mse_loss(model(moments).squeeze(1), strains)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
