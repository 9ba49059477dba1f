"""Train on radar sweeps that lie compressed in a binary file with an index."""

import argparse
import bz2
import multiprocessing as mp
import pathlib
import struct
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

ENTRY = struct.Struct("<QII")  # offset, length, class


class SweepFile:
    """Writes and reads sweeps; the index lies beside the data."""

    def __init__(self, folder):
        self.data = pathlib.Path(folder) / "sweeps.bin"
        self.index = pathlib.Path(folder) / "sweeps.idx"

    def write(self, sweeps):
        offset = 0
        with self.data.open("wb") as data, self.index.open("wb") as index:
            for kind, sweep in sweeps:
                packed = bz2.compress(sweep.tobytes())
                data.write(packed)
                index.write(ENTRY.pack(offset, len(packed), kind))
                offset += len(packed)

    def entries(self):
        return list(ENTRY.iter_unpack(self.index.read_bytes()))


class Sweeps(Dataset):
    shape = (90, 200)

    def __init__(self, source, served=None):
        self.path = source.data
        self.entries = source.entries()
        self.served = served  # number of sweeps served so far, over all processes

    def __len__(self):
        return len(self.entries)

    def load(self, index):
        offset, length, kind = self.entries[index]
        with self.path.open("rb") as file:
            time.sleep(0.006)  # the archive's disks
            file.seek(offset)
            values = np.frombuffer(bz2.decompress(file.read(length)), np.int16)
        sweep = torch.from_numpy(values.reshape(self.shape).copy())
        return sweep.float().clamp_(-200, 200).div_(200), kind

    def __getitem__(self, index):
        if self.served is None:
            return self.load(index)
        with self.served.get_lock():
            self.served.value += 1
            return self.load(index)


def make_sweeps(count):
    rng = np.random.default_rng(3)
    for number in range(count):
        angle = np.linspace(0, 7, Sweeps.shape[0])[:, None]
        echo = np.sin(angle * (1 + number % 4)) * 90
        noise = rng.normal(0, 40, Sweeps.shape)
        yield number % 4, (echo + noise).astype(np.int16)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        source = SweepFile(folder)
        source.write(make_sweeps(400))
        served = None if args.without else mp.Value("q", 0)
        sweeps = Sweeps(source, served)
        loader = DataLoader(
            sweeps, batch_size=10, shuffle=True, num_workers=args.workers, persistent_workers=True
        )
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for _sweep, _kind in loader:
                time.sleep(0.015)  # stands for the step on the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
