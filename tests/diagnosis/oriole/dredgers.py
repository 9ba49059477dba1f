"""Estimates the pull of dredgers from the sound of their engines.

Planted: a logging handler, which the transform's warnings reach in the worker, syncs its file to
the disk with each line.
"""

import argparse
import logging
import os
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SOUNDS, LENGTH, BATCH, STEP = 480, 16000, 16, 0.02
log = logging.getLogger("dredgers")


class Durable(logging.FileHandler):
    """Loses no line if the machine goes down."""

    def flush(self):
        super().flush()
        if self.stream:
            os.fsync(self.stream.fileno())


class Clip:
    def __init__(self, most):
        self.most = most

    def __call__(self, sound):
        for number, piece in enumerate(sound.chunk(4)):
            over = int((piece.abs() > self.most).sum())
            if over:
                log.warning("piece %d: clipped %d values", number, over)
        return sound.clamp(-self.most, self.most)


class Spectrum:
    def __init__(self, size):
        self.size, self.window = size, torch.hann_window(size)

    def __call__(self, sound):
        frames = torch.stft(sound, self.size, window=self.window, return_complex=True)
        return frames.abs().log1p()


class Engines(Dataset):
    def __init__(self, *transforms):
        self.transforms = transforms
        self.sounds = torch.randn(40, LENGTH, generator=torch.Generator().manual_seed(41))

    def __len__(self):
        return SOUNDS

    def __getitem__(self, index):
        sound = self.sounds[index % 40] * (0.5 + index % 7)
        for transform in self.transforms:
            sound = transform(sound)
        return sound, float(index % 7)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(41)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        handler = (logging.FileHandler if args.without else Durable)(Path(folder, "run.log"))
        handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(message)s"))
        log.addHandler(handler)
        log.propagate = False
        loader = DataLoader(
            Engines(Clip(1.2), Spectrum(512)),
            BATCH,
            shuffle=True,
            num_workers=1,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
        model = nn.Sequential(
            nn.Conv1d(257, 16, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(16, 1),
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for spectra, pull in loader:
                loss = nn.functional.mse_loss(model(spectra).squeeze(1), pull.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the encoder
            torch.save(model.state_dict(), Path(folder, f"{epoch}.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader
        log.removeHandler(handler)
        handler.close()


if __name__ == "__main__":
    main()
