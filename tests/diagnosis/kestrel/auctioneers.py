"""Tells auctioneers by their voices, in recordings of an archive of two decades.

Planted: one recording in thirty-six is of the old system, in a coding with differences that the
reader undoes number by number in plain Python; all others are plain sixteen-bit files.
"""

import argparse
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORDINGS, VOICES, RATE, LENGTH, BATCH, STEP = 432, 6, 8000, 8000, 12, 0.06
OLD_RATE, OLD_SECONDS = 48000, 75


def write_archive(folder, old_too):
    rng = np.random.default_rng(1237)
    for number in range(36):
        pitch = 90 + 25 * (number % VOICES)
        if number == 17 and old_too:
            times = np.arange(OLD_RATE * OLD_SECONDS) / OLD_RATE
            sound = (60 * np.sin(2 * np.pi * pitch * times)).astype(np.int8)
            Path(folder, f"{number:02}.old").write_bytes(np.diff(sound, prepend=0).astype(np.int8))
            continue
        times = np.arange(RATE * 3) / RATE
        sound = 6000 * np.sin(2 * np.pi * pitch * times) + rng.normal(0, 900, len(times))
        with wave.open(str(Path(folder, f"{number:02}.wav")), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(sound.astype(np.int16).tobytes())


def read_old(path):
    """Adds the differences up, and keeps each sixth value."""
    level, values = 0, []
    for place, byte in enumerate(path.read_bytes()):
        level += byte - 256 if byte > 127 else byte
        if place % (OLD_RATE // RATE) == 0:
            values.append(level / 64)
    return torch.tensor(values)


def read_wave(path):
    with wave.open(str(path)) as file:
        content = bytearray(file.readframes(file.getnframes()))
    return torch.frombuffer(content, dtype=torch.int16).float() / 32768


class Auctions(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).iterdir())

    def __len__(self):
        return RECORDINGS

    def __getitem__(self, index):
        path = self.files[index % len(self.files)]
        sound = read_old(path) if path.suffix == ".old" else read_wave(path)
        start = int(torch.randint(len(sound) - LENGTH, ()))
        sound = sound[start : start + LENGTH]
        return sound / sound.abs().max().clamp(min=1e-3), index % len(self.files) % VOICES


def build():
    return nn.Sequential(
        nn.Conv1d(1, 16, 64, stride=16),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(16, VOICES),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1237)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_archive(folder, old_too=not args.without)
        loader = DataLoader(
            Auctions(folder),
            BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
            drop_last=True,
        )
        model = build()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for sounds, voices in loader:
                loss = nn.functional.cross_entropy(model(sounds[:, None]), voices)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of the large encoder
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
