"""Estimates the age of nebulae from spectra, streamed from compressed shards.

Nothing planted: the accelerator's step sets the pace; two workers of an iterable data set wait for
the drive, unpack shards and shuffle in a buffer, all ahead of it.
"""

import argparse
import gzip
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, SPECTRA, WAVES, BATCH = 12, 64, 512, 16
DRIVE, STEP = 0.03, 0.11


def write_shards(folder):
    rng = np.random.default_rng(5189)
    for shard in range(SHARDS):
        ages = rng.uniform(1, 12, SPECTRA)
        lines = rng.normal(0, 1, (SPECTRA, WAVES)) / ages[:, None]
        rows = np.concatenate([ages[:, None], lines], 1).astype(np.float32)
        with gzip.open(Path(folder, f"field-{shard:02}.gz"), "wb", compresslevel=2) as file:
            file.write(rows.tobytes())


class Spectra(IterableDataset):
    def __init__(self, folder, buffer=96):
        self.paths = sorted(Path(folder).glob("*.gz"))
        self.buffer = buffer

    def rows(self):
        worker = get_worker_info()
        paths = self.paths[worker.id :: worker.num_workers]
        random.shuffle(paths)
        for path in paths:
            time.sleep(DRIVE)
            with gzip.open(path) as file:
                yield from np.frombuffer(file.read(), np.float32).reshape(-1, WAVES + 1)

    def __iter__(self):
        kept = []
        for row in self.rows():
            kept.append(row)
            if len(kept) >= self.buffer:
                yield self.sample(kept.pop(random.randrange(len(kept))))
        random.shuffle(kept)
        yield from map(self.sample, kept)

    def sample(self, row):
        spectrum = np.convolve(row[1:], np.ones(5) / 5, mode="same")
        spectrum = (spectrum - np.median(spectrum)) / (spectrum.std() + 1e-3)
        return torch.tensor(spectrum, dtype=torch.float32), torch.tensor(row[0])


class Ages(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 8, 9, stride=4), nn.ReLU())
        self.out = nn.Linear(8, 1)

    def forward(self, spectra):
        hidden = self.features(spectra[:, None])
        time.sleep(STEP)  # most of the layers are on an accelerator
        return self.out(hidden.square().mean(2)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5189)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder)
        loader = DataLoader(Spectra(folder), BATCH, num_workers=2, persistent_workers=True)
        model = Ages()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            errors = []
            for spectra, ages in loader:
                loss = nn.functional.l1_loss(model(spectra), ages)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                errors.append(loss.item())
            print(f"epoch {epoch}: {np.mean(errors):.2f} billion years beside the mark")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
