"""Detects whispers in recordings of a house, of which a second is cut out.

Planted: the cut was moved behind the resampling, so that it takes the right length; most recordings
are of two seconds, but one in forty of many minutes, all of which is resampled first.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FROM, RATE, SHORT, LONG, EVERY = 22_050, 8000, 2, 240, 40


class Recordings:
    """Recordings in memory, as 16-bit numbers."""

    def __init__(self, count):
        self.count = count
        self.room = np.random.default_rng(1129).normal(0, 900, FROM * LONG).astype(np.int16)

    def get(self, index):
        return self.room if index % EVERY == 11 else self.room[index * 50 :][: FROM * SHORT]


class Preparation:
    """Steps from a recording to a second at the model's rate."""

    cut_first = False

    def cut(self, sound, rate):
        begin = int(torch.randint(len(sound) - rate, ()))
        return sound[begin : begin + rate]

    def resample(self, sound):
        count = len(sound) * RATE // FROM
        smooth = np.convolve(sound.astype(np.float32) / 32768, np.full(3, 1 / 3), "same")
        return np.interp(np.arange(count) * (FROM / RATE), np.arange(len(sound)), smooth)

    def __call__(self, sound):
        if self.cut_first:
            return self.resample(self.cut(sound, FROM))
        return self.cut(self.resample(sound), RATE)


class Whispers(Dataset):
    def __init__(self, recordings, prepare):
        self.recordings, self.prepare = recordings, prepare

    def __len__(self):
        return self.recordings.count

    def __getitem__(self, index):
        sound = self.prepare(self.recordings.get(index))[:RATE]
        if index % 2:
            sound = sound + 0.01 * np.sin(np.arange(len(sound)) * 0.9)
        return torch.from_numpy(sound.astype(np.float32))[None], index % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1129)
    Preparation.cut_first = args.without
    loader = DataLoader(
        Whispers(Recordings(800), Preparation()), batch_size=10, shuffle=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv1d(1, 16, 64, stride=16), nn.ReLU(), nn.Conv1d(16, 32, 8, stride=4), nn.ReLU(),
        nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Linear(128, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for sounds, whispers in loader:
            loss = nn.functional.cross_entropy(model(sounds), whispers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
