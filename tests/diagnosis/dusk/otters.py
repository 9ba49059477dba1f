"""Calls of otters out of one file of records on a network disk, with a lock file beside it."""

import argparse
import contextlib
import fcntl
import os
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DISK_S = 0.006


class RecordFile:
    """Compressed records in one file, with a lock file beside it."""

    def __init__(self, path, way):
        self.path, self.way, self.places, self.handles = path, way, [], None

    def write(self, records):
        with open(self.path, "wb") as file:
            for record in records:
                packed = zlib.compress(record.tobytes(), 1)
                self.places.append((file.tell(), len(packed)))
                file.write(packed)
        Path(f"{self.path}.lock").touch()

    @contextlib.contextmanager
    def opened(self):
        if self.handles is None:
            flags = os.O_RDWR
            self.handles = os.open(self.path, flags), os.open(f"{self.path}.lock", flags)
        file, lock = self.handles
        fcntl.flock(lock, self.way)
        try:
            yield file
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)

    def read(self, number):
        offset, length = self.places[number]
        with self.opened() as file:
            time.sleep(DISK_S)
            packed = os.pread(file, length, offset)
        return np.frombuffer(zlib.decompress(packed), np.float32)


class Calls(Dataset):
    def __init__(self, records):
        self.records = records
        self.window = torch.hann_window(256)

    def __len__(self):
        return len(self.records.places)

    def __getitem__(self, index):
        wave = torch.from_numpy(self.records.read(index).copy())
        wave = wave.roll(int(torch.randint(len(wave), ()))) / wave.abs().max()
        spectrum = torch.stft(wave, 256, 128, window=self.window, return_complex=True)
        return spectrum.abs().clamp_min(1e-5).log()[None], index % 7


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(35)
    rng = np.random.default_rng(35)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(96, 7),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        way = fcntl.LOCK_SH if args.without else fcntl.LOCK_EX
        records = RecordFile(Path(folder) / "calls", way)
        records.write(rng.normal(size=(480, 8000)).astype(np.float32))
        loader = DataLoader(Calls(records), batch_size=12, shuffle=True, num_workers=3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for spectra, kinds in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(spectra), kinds)
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
