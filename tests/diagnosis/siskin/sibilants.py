"""Tells the sounds s, sh and z apart in short recordings, with echo and noise added on the way."""

import argparse
import time
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, SOUNDS = 16_000, 4, 3


@dataclass(frozen=True)
class Settings:
    batch_size: int = 16
    recordings: int = 800
    workers: int = 2
    worker_threads: int = 16
    learning_rate: float = 1e-3


class Recordings(Dataset):
    """Recordings in memory; each is given an echo and noise, and becomes a spectrogram."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(29)
        self.waves = torch.randn(40, RATE * SECONDS, generator=generator) * 0.1
        self.rooms = torch.randn(8, 120, generator=generator) * torch.exp(-torch.arange(120) / 30)
        self.window = torch.hann_window(400)
        self.count = count

    def __len__(self):
        return self.count

    def echo(self, wave):
        room = self.rooms[torch.randint(len(self.rooms), ())]
        padded = nn.functional.pad(wave, (119, 0))
        return nn.functional.conv1d(padded[None, None], room[None, None])[0, 0]

    def __getitem__(self, index):
        wave = self.echo(self.waves[index % len(self.waves)])
        for _ in range(6):
            wave = torch.tanh(wave * 1.05) + 0.01 * torch.sin(wave * 20)
        wave = wave + torch.randn_like(wave) * 0.01
        spectrum = torch.stft(wave, 400, 160, window=self.window, return_complex=True).abs()
        spectrum = torch.log(spectrum + 1e-5)
        return (spectrum - spectrum.mean()) / spectrum.std(), index % SOUNDS


def start(settings, worker):
    torch.set_num_threads(settings.worker_threads)
    torch.manual_seed(1000 + worker)


def network():
    return nn.Sequential(
        nn.Conv1d(201, 64, 5, stride=4), nn.ReLU(), nn.Conv1d(64, 64, 5, stride=4), nn.ReLU(),
        nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(256, SOUNDS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    settings = Settings(worker_threads=1) if args.without else Settings()
    torch.manual_seed(29)
    torch.set_num_threads(1)
    loader = DataLoader(
        Recordings(settings.recordings),
        settings.batch_size,
        shuffle=True,
        num_workers=settings.workers,
        worker_init_fn=partial(start, settings),
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for spectra, sounds in loader:
            scores = model(spectra)
            loss = nn.functional.cross_entropy(scores, sounds, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            right += (scores.argmax(1) == sounds).sum()
        print(f"epoch {epoch}: loss {loss:.3f}, right {right / settings.recordings:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
