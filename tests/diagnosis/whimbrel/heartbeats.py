"""Finds skipped heartbeats in recordings, with workers that leave a record of what they gave.

Planted: each worker keeps all that it has given out, and packs it with LZMA when it ends, which is
at the end of each epoch; the main process waits for that.
"""

import argparse
import json
import lzma
import multiprocessing.util
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

LENGTH, LEADS = 1500, 3


class Record:
    """What one worker has given out, to look at it if a model should go astray."""

    def __init__(self, folder, worker):
        self.folder, self.worker = Path(folder), worker
        self.numbers, self.pieces = [], []

    def add(self, number, piece):
        self.numbers.append(number)
        self.pieces.append(piece.tobytes())

    def close(self):
        name = f"worker{self.worker}"
        (self.folder / f"{name}.json").write_text(json.dumps(self.numbers))
        (self.folder / f"{name}.xz").write_bytes(lzma.compress(b"".join(self.pieces)))


class Heartbeats(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(2230)
        beats = np.sin(np.arange(LENGTH) / 12) ** 15
        noise = rng.normal(0, 60, (count, LEADS, LENGTH))
        self.skipped = rng.integers(0, 2, count)
        waves = 900 * beats + noise
        waves[:, :, 600:680] *= 1 - self.skipped[:, None, None]
        self.waves = waves.astype(np.int16)
        self.record = None

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        wave = np.roll(self.waves[index], np.random.randint(LENGTH), 1)
        if self.record is not None:
            self.record.add(index, wave)
        return torch.from_numpy(wave.astype(np.float32) / 500), int(self.skipped[index])


class Setup:
    """Sets a worker up: its record is closed when it ends."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, number):
        record = Record(self.folder, number)
        get_worker_info().dataset.record = record
        multiprocessing.util.Finalize(None, record.close, exitpriority=10)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(LEADS, 16, 15, stride=3), nn.ReLU(), nn.Conv1d(16, 24, 9, stride=3),
            nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(24, 2),
        )  # fmt: skip

    def forward(self, waves):
        return self.layers(waves - waves.mean(2, keepdim=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(2230)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Heartbeats(640), batch_size=16, shuffle=True, num_workers=2,
            worker_init_fn=None if args.without else Setup(folder),
        )  # fmt: skip
        model = Reader()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for waves, skipped in loader:
                loss = nn.functional.cross_entropy(model(waves), skipped)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
