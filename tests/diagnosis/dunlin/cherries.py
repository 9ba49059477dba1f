"""Tells ripe cherries from others in short clips of long films.

Planted: the film's reader decodes from its first frame on, however late a clip begins, though
every tenth frame is a key frame. Two workers are forked and kept.
"""

import argparse
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, FRAMES, KEY, CLIP = 48, 320, 10, 8


class Film:
    """Frames as differences to the one before; a key frame stands for itself."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.packed, last = [], np.zeros((SIDE, SIDE, 3), np.uint8)
        for number in range(FRAMES):
            frame = last.copy()
            frame[rng.integers(SIDE)] = rng.integers(0, 255, (SIDE, 3))
            base = 0 if number % KEY == 0 else last
            self.packed.append(zlib.compress((frame - base).tobytes(), 1))
            last = frame

    def decode(self, number, last):
        change = np.frombuffer(zlib.decompress(self.packed[number]), np.uint8)
        change = change.reshape(SIDE, SIDE, 3)
        return change if number % KEY == 0 else last + change

    def read(self, first, count, seek):
        begin = first - first % KEY if seek else 0
        frames, last = [], None
        for number in range(begin, first + count):
            last = self.decode(number, last)
            if number >= first:
                frames.append(last)
        return np.stack(frames)


class Clips(Dataset):
    def __init__(self, count, seek):
        self.films = [Film(31 + number) for number in range(8)]
        self.count, self.seek = count, seek

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        first = int(torch.randint(FRAMES - CLIP, ()))
        clip = self.films[index % 8].read(first, CLIP, self.seek)
        return torch.from_numpy(clip).permute(3, 0, 1, 2).float() / 255, index % 2


def build_model():
    return nn.Sequential(
        nn.Conv3d(3, 8, (3, 5, 5), stride=(1, 4, 4)), nn.ReLU(),
        nn.AdaptiveAvgPool3d(4), nn.Flatten(), nn.Linear(512, 2),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(31)
    loader = DataLoader(
        Clips(512, seek=args.without),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for clips, ripe in loader:
            loss = nn.functional.cross_entropy(model(clips), ripe)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
