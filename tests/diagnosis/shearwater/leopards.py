"""Finds faults of machines by windows of long recordings of sound.

Planted: windows begin anywhere, and a cache without a bound keeps each one's spectrum, so that
the memory of both workers grows all the time.
"""

import argparse
import functools
import logging
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("machines")
RECORDINGS, RATE, SECONDS, WINDOW, PER_EPOCH, BATCH, STEP = 8, 8000, 30, 40_000, 480, 16, 0.11


def write_recordings(folder):
    rng = np.random.default_rng(5147)
    times = np.arange(RATE * SECONDS) / RATE
    for number in range(RECORDINGS):
        sound = 0.3 * np.sin(2 * np.pi * (90 + 20 * number) * times)
        if number % 2:
            sound += 0.2 * (rng.random(len(times)) > 0.999)
        sound += rng.normal(0, 0.05, len(times))
        with wave.open(str(Path(folder, f"{number}-{number % 2}.wav")), "wb") as file:
            file.setparams((1, 2, RATE, len(times), "NONE", ""))
            file.writeframes((sound.clip(-1, 1) * 32767).astype("<i2").tobytes())


class Windows(Dataset):
    def __init__(self, folder, kept):
        self.paths = sorted(Path(folder).glob("*.wav"))
        self.weighting = torch.hann_window(512)
        self.spectrum = functools.lru_cache(maxsize=kept)(self.read)

    def __len__(self):
        return PER_EPOCH

    def read(self, recording, start):
        with wave.open(str(self.paths[recording])) as file:
            file.setpos(start)
            sound = np.frombuffer(file.readframes(WINDOW), "<i2").astype(np.float32) / 32768
        spectrum = torch.stft(
            torch.from_numpy(sound), 512, 160, window=self.weighting, return_complex=True
        )
        return spectrum.abs().add_(1e-4).log_()

    def __getitem__(self, index):
        recording = index % RECORDINGS
        start = int(torch.randint(RATE * SECONDS - WINDOW, ()))
        spectrum = self.spectrum(recording, start)
        return spectrum - spectrum.mean(), float(recording % 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bands = nn.Linear(257, 16)
        self.out = nn.Linear(32, 1)

    def forward(self, spectra):
        bands = torch.relu(self.bands(spectra.transpose(1, 2)))
        return self.out(torch.cat([bands.mean(1), bands.amax(1)], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(5147)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_recordings(folder)
        loader = DataLoader(
            Windows(folder, kept=16 if args.without else None),
            BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
        )
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for spectra, faults in loader:
                guesses = model(spectra)
                loss = nn.functional.binary_cross_entropy_with_logits(guesses, faults.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of the large model on a device
                right += ((guesses > 0) == (faults > 0.5)).sum().item()
            schedule.step()
            log.info("epoch %d: loss %.3f, right %.2f", epoch, loss.item(), right / PER_EPOCH)
            torch.save(model.state_dict(), Path(folder, "model.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
