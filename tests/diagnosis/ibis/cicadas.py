"""Tells species of cicadas by their songs, from recordings in memory.

Planted: in each of three workers a thread makes spectrograms ahead, of recordings drawn at random,
for a cache of eight that is hardly ever hit; these threads take the cores that the step needs.
"""

import argparse
import random
import threading
import time
from collections import OrderedDict

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SONGS, LENGTH, SPECIES, BATCH = 480, 16_384, 6, 16


def spectrogram(song):
    window = torch.hann_window(512)
    return torch.stft(song, 512, 128, window=window, return_complex=True).abs().log1p()


class Ahead(threading.Thread):
    """Keeps the cache warm."""

    def __init__(self, songs, size=8):
        super().__init__(daemon=True)
        self.songs, self.size = songs, size
        self.made, self.lock = OrderedDict(), threading.Lock()

    def run(self):
        while True:
            index = random.randrange(len(self.songs))
            made = spectrogram(self.songs[index].float() / 32_768)
            with self.lock:
                self.made[index] = made
                if len(self.made) > self.size:
                    self.made.popitem(last=False)

    def get(self, index):
        with self.lock:
            return self.made.pop(index, None)


class Songs(Dataset):
    def __init__(self, ahead):
        generator = torch.Generator().manual_seed(811)
        noise = torch.randint(-3000, 3000, (SONGS, LENGTH), generator=generator)
        moments = torch.arange(LENGTH) / 16_000
        for number in range(SONGS):
            pitch = 900 + 700 * (number % SPECIES)
            noise[number] += (9000 * torch.sin(6.283 * pitch * moments)).long()
        self.songs = noise.to(torch.int16)
        self.with_ahead, self.ahead = ahead, None

    def __len__(self):
        return SONGS

    def __getitem__(self, index):
        picture = None
        if self.with_ahead:
            if self.ahead is None:
                self.ahead = Ahead(self.songs)
                self.ahead.start()
            picture = self.ahead.get(index)
        if picture is None:
            picture = spectrogram(self.songs[index].float() / 32_768)
        return picture[None, :256, :], index % SPECIES


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 48, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(192, SPECIES),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(811)
    torch.set_num_threads(1)
    loader = DataLoader(
        Songs(ahead=not args.without),
        BATCH,
        shuffle=True,
        num_workers=3,
        persistent_workers=True,
    )
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for pictures, species in loader:
            scores = model(pictures)
            loss = nn.functional.cross_entropy(scores, species)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == species).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, right {right / SONGS:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
