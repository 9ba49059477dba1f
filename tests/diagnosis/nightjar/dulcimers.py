"""Tells tunings of dulcimers apart by short recordings kept in one compressed archive.

Planted: the archive is a `.tar.gz`, which is unpacked from its start up to the recording wanted,
for each sample.
"""

import argparse
import io
import tarfile
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

RECORDINGS, SAMPLES, RATE, BATCH, DRAWN, STEP = 160, 32000, 16000, 12, 480, 0.12


def write_archive(path, mode):
    rng = np.random.default_rng(239)
    time_axis = np.arange(SAMPLES) / RATE
    with tarfile.open(path, mode) as archive:
        for number in range(RECORDINGS):
            pitch = 220 * 2 ** ((number % 5) / 12)
            sound = np.sin(2 * np.pi * pitch * time_axis) + rng.normal(0, 0.05, SAMPLES)
            content = io.BytesIO()
            with wave.open(content, "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(RATE)
                file.writeframes((sound * 8000).astype("<i2").tobytes())
            member = tarfile.TarInfo(f"dulcimer/{number:04}.wav")
            member.size = content.tell()
            content.seek(0)
            archive.addfile(member, content)


class Recordings(Dataset):
    def __init__(self, path):
        self.path = path
        with tarfile.open(path) as archive:
            self.names = archive.getnames()

    def __len__(self):
        return len(self.names)

    def load(self, name):
        with tarfile.open(self.path) as archive:
            return archive.extractfile(name).read()

    def __getitem__(self, index):
        name = self.names[index]
        with wave.open(io.BytesIO(self.load(name))) as file:
            sound = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        sound = torch.from_numpy(sound / np.float32(32768))
        window = torch.hann_window(512)
        spectrum = torch.stft(sound, 512, 256, window=window, return_complex=True).abs()
        return spectrum.clamp(min=1e-5).log(), index % 5


class Tuning(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Conv1d(257, 16, 5, stride=4)
        self.decide = nn.Linear(16, 5)

    def forward(self, spectra):
        return self.decide(torch.relu(self.encode(spectra)).amax(dim=2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(239)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        ending, mode = ("tar", "w") if args.without else ("tar.gz", "w:gz")
        path = Path(folder, f"dulcimers.{ending}")
        write_archive(path, mode)
        data = Recordings(path)
        sampler = RandomSampler(data, replacement=True, num_samples=DRAWN)
        loader = DataLoader(data, BATCH, sampler=sampler, num_workers=2, prefetch_factor=4)
        model = Tuning()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for spectra, tunings in loader:
                scores = model(spectra)
                loss = nn.functional.cross_entropy(scores, tunings)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # a transformer, on an accelerator
                right += int((scores.argmax(1) == tunings).sum())
            print(f"epoch {epoch}: {right / DRAWN:.2f} right")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
