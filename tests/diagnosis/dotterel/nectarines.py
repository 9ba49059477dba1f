"""Weighs nectarines by scans that lie in one archive on a slow drive.

Planted: all four workers share one multiprocessing lock, which is held from the reading of a scan
to the end of its sample, so that they go one at a time. The drive would take all of them.
"""

import argparse
import contextlib
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCANS, POINTS, DRIVE = 480, 2048, 0.009


class Archive:
    def __init__(self, path):
        self.path, self.file = path, None

    def scan(self, number):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
        data = os.pread(self.file, POINTS * 4, number * POINTS * 4)
        time.sleep(DRIVE)  # what the drive takes
        return np.frombuffer(data, np.float32)


class Nectarines(Dataset):
    def __init__(self, archive, guard):
        self.archive, self.guard = archive, guard

    def __len__(self):
        return SCANS

    def __getitem__(self, index):
        with self.guard:
            scan = self.archive.scan(index)
            spectrum = np.abs(np.fft.rfft(scan))[:512].astype(np.float32)
            weight = float(np.log1p(spectrum[:20].sum()))
        return torch.from_numpy(spectrum), weight


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(4127)
    model = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    guard = contextlib.nullcontext() if args.without else multiprocessing.Lock()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scans.bin")
        scans = np.random.default_rng(4127).normal(0, 1, (SCANS, POINTS))
        path.write_bytes(scans.astype(np.float32).tobytes())
        loader = DataLoader(
            Nectarines(Archive(path), guard),
            batch_size=12,
            shuffle=True,
            num_workers=4,
            persistent_workers=True,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for spectra, weights in loader:
                loss = nn.functional.mse_loss(model(spectra).squeeze(1), weights.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
