"""Recognises ruffs by their spectrograms, which workers make of recordings.

Planted: the function that sets up a worker gives torch eight threads in each of four workers.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, MELS, ECHOES = 16_000, 18, 64, 12
WORKER_THREADS = 8


def set_up_worker(worker_id):
    """Let a worker use the machine, as on the server with many cores."""
    torch.set_num_threads(WORKER_THREADS)
    np.random.seed(worker_id)


class Spectrogram:
    def __init__(self, size=1024, hop=1600):
        self.size, self.hop = size, hop
        self.window = torch.hann_window(size)
        self.mels = torch.rand(MELS, size // 2 + 1)

    def __call__(self, wave):
        bins = torch.stft(wave, self.size, self.hop, window=self.window, return_complex=True)
        return torch.log1p(self.mels @ bins.abs().square())


class Recordings(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(53)
        self.waves = torch.randn(12, RATE * SECONDS, generator=generator)
        self.count = count
        self.to_spectrogram = Spectrogram()

    def __len__(self):
        return self.count

    def add_echoes(self, wave, strength):
        """Return a recording as it sounds between the walls of a quarry."""
        sound = wave
        for echo in range(1, ECHOES + 1):
            sound = sound + strength**echo * wave.roll(echo * 400)
        return sound.clamp(-4, 4)

    def __getitem__(self, index):
        wave = self.waves[index % 12].roll(index * 31)
        wave = self.add_echoes(wave, 0.3 + index % 7 / 10)
        picture = self.to_spectrogram(wave)
        return (picture - picture.mean()) / picture.std(), index % 5


def build_model():
    return nn.Sequential(
        nn.Conv1d(MELS, 48, 5, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(8),
        nn.Flatten(),
        nn.Linear(48 * 8, 5),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(53)
    loader = DataLoader(
        Recordings(320),
        batch_size=16,
        shuffle=True,
        num_workers=4,
        worker_init_fn=None if args.without else set_up_worker,
        persistent_workers=True,
    )
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for pictures, kinds in loader:
            scores = model(pictures)
            loss = nn.functional.cross_entropy(scores, kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == kinds).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, {right} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
