"""Tells alloys apart by their spectra, which a laboratory keeps in one ZIP archive.

Planted: the archive, with the directory of all its members, is opened anew for each spectrum.
"""

import argparse
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

SPECTRA, CHANNELS, ALLOYS, BATCH, TAKEN, STEP = 2000, 256, 7, 16, 240, 0.06


def write_archive(path):
    rng = np.random.default_rng(1213)
    lines = rng.random((ALLOYS, CHANNELS))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(SPECTRA):
            spectrum = lines[number % ALLOYS] + rng.normal(0, 0.3, CHANNELS)
            archive.writestr(f"2019/{number:05}.f16", spectrum.astype(np.float16).tobytes())


class Spectra(Dataset):
    def __init__(self, path, keep_open):
        self.path, self.keep_open = path, keep_open
        self.archive = None
        self.gain = 1 + torch.linspace(-0.1, 0.1, CHANNELS)

    def __len__(self):
        return SPECTRA

    def read(self, name):
        if self.keep_open:
            if self.archive is None:  # in each worker, on first use
                self.archive = zipfile.ZipFile(self.path)
            return self.archive.read(name)
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(name)

    def __getitem__(self, index):
        content = self.read(f"2019/{index:05}.f16")
        spectrum = torch.frombuffer(bytearray(content), dtype=torch.float16).float()
        spectrum = torch.roll(spectrum * self.gain, int(torch.randint(-2, 3, ())))
        return (spectrum - spectrum.mean()) / spectrum.std(), index % ALLOYS


def train_epoch(model, loader, optimizer):
    total = 0.0
    for spectra, alloys in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(spectra), alloys)
        loss.backward()
        optimizer.step()
        time.sleep(STEP)  # in place of a deep network on an accelerator
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1213)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "spectra.zip")
        write_archive(path)
        data = Spectra(path, keep_open=args.without)
        loader = DataLoader(
            data,
            BATCH,
            sampler=RandomSampler(data, num_samples=TAKEN),
            num_workers=2,
            persistent_workers=True,
        )
        model = nn.Sequential(nn.Linear(CHANNELS, 64), nn.ReLU(), nn.Linear(64, ALLOYS))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            print(f"epoch {epoch}: loss {train_epoch(model, loader, optimizer):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
