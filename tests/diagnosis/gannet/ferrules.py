"""Finds cracks in ferrules, with a data set whose base class keeps prepared samples on the disk.

Planted: the base class writes its list of all that it has kept anew, and makes sure that it is on
the disk, once in thirty new samples.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, LISTED = 48, 60_000


class CachedDataset(Dataset):
    """A data set that keeps what `prepare` returns, and a list of what it has."""

    save_every = 30

    def __init__(self, folder):
        self.folder, self.fresh = Path(folder), 0
        # What other runs have left there.
        self.kept = {f"other-{n}": {"bytes": n * 31, "at": n / 7} for n in range(LISTED)}

    def save_list(self):
        path = self.folder / "list.json"
        with path.with_suffix(".new").open("w") as file:
            json.dump(self.kept, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".new").replace(path)

    def prepare(self, index):
        raise NotImplementedError

    def __getitem__(self, index):
        path = self.folder / f"{index}.npy"
        if path.exists():
            return torch.from_numpy(np.load(path)), index % 2
        sample = self.prepare(index)
        np.save(path, sample)
        self.kept[path.name] = {"bytes": sample.nbytes, "at": time.time()}
        self.fresh += 1
        if self.fresh % self.save_every == 0:
            self.save_list()
        return torch.from_numpy(sample), index % 2


class Ferrules(CachedDataset):
    def __init__(self, folder, count):
        super().__init__(folder)
        self.count = count
        self.raw = np.random.default_rng(439).random((30, SIDE, SIDE), dtype=np.float32)

    def __len__(self):
        return self.count

    def prepare(self, index):
        picture = self.raw[index % 30]
        spectrum = np.fft.fft2(picture * np.roll(picture, index, 0))
        return np.log1p(np.abs(spectrum)).astype(np.float32)[None]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(439)
    if args.without:
        CachedDataset.save_every = 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(Ferrules(folder, 1200), batch_size=10, shuffle=True)
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 11 * 11, 64), nn.ReLU(), nn.Linear(64, 2),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, 120 * args.epochs)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for spectra, cracked in loader:
                loss = nn.functional.cross_entropy(model(spectra), cracked)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
            print(f"epoch {epoch}: loss {loss.item():.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
