"""Tells tremors of a volcano from rock falls, from spectrograms that are kept in a cache on disk.

Planted: the cache refuses results of more than 256 KB and says nothing. These are the swarms, one
record in forty, which are therefore computed anew each time; a nightly job has computed the rest.
"""

import argparse
import pickle
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORDS, EVERY, SHORT, LONG, FRAME, HOP = 240, 40, 2_500, 800_000, 256, 32


class DiskCache:
    """Keeps what functions return, one file for each name."""

    def __init__(self, folder, largest):
        self.folder, self.largest = Path(folder), largest

    def get(self, name, function):
        path = self.folder / f"{name}.pickle"
        if path.exists():
            return pickle.loads(path.read_bytes())
        value = function()
        kept = pickle.dumps(value, protocol=5)
        if self.largest is None or len(kept) <= self.largest:
            path.write_bytes(kept)
        return value


class Station:
    """Ground motion at one station; swarms last very long."""

    def __init__(self):
        self.kinds = np.random.default_rng(3049).integers(0, 2, RECORDS)

    def record(self, number):
        rng = np.random.default_rng([3049, number])
        length = LONG if number % EVERY == EVERY - 1 else SHORT
        motion = rng.standard_normal(length, np.float32)
        if self.kinds[number]:
            motion[1:] += motion[:-1]  # tremors are of lower pitch
        return motion


def spectrogram(motion):
    """Return the mean power of 24 bands for each frame."""
    frames = np.lib.stride_tricks.sliding_window_view(motion, FRAME)[::HOP]
    power = np.abs(np.fft.rfft(frames * np.hanning(FRAME)))[:, : FRAME // 2] ** 2
    bands = power[:, :120].reshape(len(power), 24, 5).mean(2)
    return np.log(bands + 1e-6).astype(np.float32)


class Tremors(Dataset):
    def __init__(self, station, cache, frames=64):
        self.station, self.cache, self.frames = station, cache, frames

    def __len__(self):
        return RECORDS

    def features(self, number):
        return self.cache.get(f"record-{number}", lambda: spectrogram(self.station.record(number)))

    def __getitem__(self, index):
        features = self.features(index)
        start = int(torch.randint(len(features) - self.frames + 1, ()))
        piece = torch.from_numpy(features[start : start + self.frames].copy())
        return piece.T, float(self.station.kinds[index])


def nightly_job(data):
    for number in range(len(data)):
        data.features(number)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(3049)
    model = nn.Sequential(
        nn.Conv1d(24, 64, 5), nn.ReLU(), nn.Conv1d(64, 64, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
        nn.Flatten(), nn.Linear(64, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        cache = DiskCache(folder, largest=None if args.without else 256 * 1024)
        data = Tremors(Station(), cache)
        nightly_job(data)
        loader = DataLoader(
            data, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pieces, kinds in loader:
                logits = model(pieces).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, kinds.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
