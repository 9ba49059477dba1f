"""Learns the calls of turnstones from an archive that several programs may use.

Planted: the archive is locked with flock while a worker reads from it and unpacks, so that of four
workers one works at a time.
"""

import argparse
import fcntl
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CALLS, LENGTH = 600, 4096
SEEK = 0.006  # of the tape library


class Archive:
    """Packed recordings in one file, with an index."""

    def __init__(self, path, exclusive):
        self.path, self.exclusive = Path(path), exclusive
        self.places = np.load(self.path.with_suffix(".index.npy"))
        self.file = None

    def unpack(self, number):
        begin, end = self.places[number : number + 2]
        self.file.seek(begin)
        time.sleep(SEEK)
        return np.frombuffer(zlib.decompress(self.file.read(end - begin)), np.int16)

    def get(self, number):
        if self.file is None:
            self.file = open(self.path, "rb")  # noqa: SIM115
        if not self.exclusive:
            return self.unpack(number)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        try:
            return self.unpack(number)
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)


class Calls(Dataset):
    def __init__(self, archive):
        self.archive = archive

    def __len__(self):
        return CALLS

    def __getitem__(self, index):
        call = torch.from_numpy(self.archive.get(index).astype(np.float32)) / 32768
        spectrum = torch.fft.rfft(call.view(16, -1)).abs()
        return torch.log1p(spectrum), index % 4


def write_archive(path):
    rng = np.random.default_rng(71)
    places = [0]
    with open(path, "wb") as file:
        for _ in range(CALLS):
            call = (rng.standard_normal(LENGTH).cumsum() * 50).astype(np.int16)
            places.append(places[-1] + file.write(zlib.compress(call.tobytes(), 9)))
    np.save(Path(path).with_suffix(".index.npy"), np.array(places))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(71)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "calls.bin")
        write_archive(path)
        calls = Calls(Archive(path, exclusive=not args.without))
        loader = DataLoader(
            calls, batch_size=12, shuffle=True, num_workers=4, persistent_workers=True
        )
        model = nn.Sequential(nn.Flatten(), nn.Linear(16 * 129, 128), nn.ReLU(), nn.Linear(128, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for spectra, kinds in loader:
                loss = nn.functional.cross_entropy(model(spectra), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
