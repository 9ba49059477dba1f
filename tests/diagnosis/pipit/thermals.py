"""Guesses where gliders find thermals, from tracks of flights in compressed shards.

Nothing planted: the accelerator's step sets the pace; each of two workers unpacks shards of its own
and mixes windows of their tracks ahead of it.
"""

import argparse
import gzip
import io
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, FIXES, FIELDS, WINDOW, STRIDE, BATCH, STEP = 8, 6000, 5, 120, 40, 16, 0.16


def write(folder):
    rng = np.random.default_rng(83)
    for shard in range(SHARDS):
        track = rng.normal(0, 1, (FIXES, FIELDS)).cumsum(0).round(1).astype(np.float32)
        file = io.BytesIO()
        np.save(file, track)
        (folder / f"{shard}.npy.gz").write_bytes(gzip.compress(file.getvalue(), 3))


def mixed(samples, size):
    buffer = []
    for sample in samples:
        buffer.append(sample)
        if len(buffer) >= size:
            yield buffer.pop(random.randrange(len(buffer)))
    random.shuffle(buffer)
    yield from buffer


class Tracks(IterableDataset):
    def __init__(self, folder):
        self.folder = folder

    def windows(self):
        info = get_worker_info()
        for shard in range(info.id, SHARDS, info.num_workers):
            packed = (self.folder / f"{shard}.npy.gz").read_bytes()
            track = np.load(io.BytesIO(gzip.decompress(packed)))
            for start in range(0, FIXES - WINDOW, STRIDE):
                window = track[start : start + WINDOW]
                yield torch.from_numpy(window - window[0]), float(window[-1, 2] > window[0, 2])

    def __iter__(self):
        return mixed(self.windows(), 64)


class Pilot(nn.Module):
    def __init__(self):
        super().__init__()
        self.track, self.climb = nn.GRU(FIELDS, 16, batch_first=True), nn.Linear(16, 1)

    def forward(self, windows):
        return self.climb(self.track(windows)[0][:, -1]).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(83)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        loader = DataLoader(
            Tracks(Path(name)), BATCH, num_workers=2, persistent_workers=True, prefetch_factor=4
        )
        model = Pilot()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for windows, climbs in loader:
                guess = model(windows)
                loss = nn.functional.binary_cross_entropy_with_logits(guess, climbs.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's work
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
