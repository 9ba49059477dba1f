"""Tells the instruments of orchestras apart by their sound, read from WAV files."""

import argparse
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TONES, RATE, INSTRUMENTS, BATCH = 192, 4000, 5, 16


def write_tones(folder):
    rng = np.random.default_rng(157)
    for number in range(TONES):
        instrument = int(rng.integers(INSTRUMENTS))
        seconds = np.arange(RATE) / RATE
        tone = sum(np.sin(2 * np.pi * 220 * k * seconds) / k for k in range(1, instrument + 2))
        tone += rng.normal(0, 0.2, RATE)
        with wave.open(str(Path(folder, f"{number:03}-{instrument}.wav")), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes((8000 * tone).astype("<i2").tobytes())


class Tones(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.wav"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        with wave.open(str(path), "rb") as file:
            values = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return torch.from_numpy(values.astype(np.float32) / 8000), int(path.stem.split("-")[1])


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, 32, 9, stride=2),
            nn.ReLU(),
            nn.Conv1d(32, 48, 9, stride=2),
            nn.ReLU(),
            nn.Conv1d(48, 48, 9),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(48, INSTRUMENTS),
        )

    def forward(self, tones):
        return self.layers(tones.unsqueeze(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(157)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_tones(folder)
        loader = DataLoader(Tones(folder), batch_size=BATCH, shuffle=True)
        model = Listener()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            losses = []
            for tones, instruments in loader:
                loss = nn.functional.cross_entropy(model(tones), instruments)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
