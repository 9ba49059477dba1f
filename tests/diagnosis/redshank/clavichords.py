"""Names the composer of pieces for clavichord from rolls of their notes."""

import argparse
import logging
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PIECES, NOTES, KEYS, TICKS, BATCH = 240, 60, 64, 256, 24
log = logging.getLogger("pieces")


class Journal(logging.FileHandler):
    """A log file that loses nothing, whatever happens to the machine."""

    def emit(self, record):
        super().emit(record)
        os.fsync(self.stream.fileno())


def start(folder, level, worker):
    log.addHandler(Journal(Path(folder) / f"worker{worker}.log"))
    log.setLevel(level)


class Start:
    def __init__(self, folder, level):
        self.folder, self.level = folder, level

    def __call__(self, worker):
        start(self.folder, self.level, worker)


class Pieces(Dataset):
    """Rolls of keys by ticks; a note is as loud as it was struck and fades."""

    def __init__(self, transform):
        rng = np.random.default_rng(9)
        self.starts = rng.integers(0, TICKS - 40, (PIECES, NOTES))
        self.keys = rng.integers(0, KEYS, (PIECES, NOTES))
        self.loud = rng.uniform(0.3, 1, (PIECES, NOTES)).astype(np.float32)
        self.fading = np.exp(-np.arange(40) / 12).astype(np.float32)
        self.transform = transform

    def __len__(self):
        return 3 * PIECES

    def __getitem__(self, index):
        piece = index % PIECES
        roll = np.zeros((1, KEYS, TICKS), np.float32)
        for start, key, loud in zip(
            self.starts[piece], self.keys[piece], self.loud[piece], strict=True
        ):
            if roll[0, key, start] > 1.2:
                log.warning("piece %d: key %d struck again at %d", piece, key, start)
            log.info("piece %d: key %d at %d, loudness %.2f", piece, key, start, loud)
            roll[0, key, start : start + 40] += loud * self.fading
        return self.transform(torch.from_numpy(roll)), piece % 4


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    views = v2.Compose([v2.RandomCrop((KEYS, 192)), v2.RandomErasing(0.3)])
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Pieces(views),
            BATCH,
            shuffle=True,
            num_workers=4,
            worker_init_fn=Start(folder, logging.WARNING if args.without else logging.INFO),
            persistent_workers=True,
            multiprocessing_context="spawn",
        )
        model = nn.Sequential(
            nn.Conv2d(1, 24, 5, stride=2), nn.ReLU(), nn.Conv2d(24, 48, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(768, 4),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for rolls, composers in loader:
                loss = nn.functional.cross_entropy(model(rolls), composers)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
