"""Tells which way the drum of a zoetrope turns, from short clips of the pictures inside."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FILMS, LENGTH, HEIGHT, WIDTH = 4, 40, 200, 240
FRAMES, SIDE, BATCH = 12, 144, 8
MEAN, SPREAD = 0.45, 0.22


def films(seed):
    """Return films as bytes, (films, frames, channels, height, width)."""
    rng = np.random.default_rng(seed)
    first = rng.integers(256, size=(FILMS, 1, 3, HEIGHT, WIDTH), dtype=np.uint8)
    turned = [np.roll(first, 5 * frame, axis=-1) for frame in range(LENGTH)]
    return np.concatenate(turned, axis=1)


def scaled(clips, dtype):
    return (clips.to(dtype) / 255 - MEAN) / SPREAD


class Clips(IterableDataset):
    """Batches of clips that are cut at random out of the films, some of them backwards."""

    def __init__(self, seed, batches, ready):
        self.seed, self.batches, self.ready = seed, batches, ready
        self.films = None

    def __iter__(self):
        if self.films is None:
            self.films = films(self.seed)
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        rng = np.random.default_rng(self.seed * 100 + first)
        for _ in range(first, self.batches, step):
            turns = rng.integers(2, size=BATCH)
            clips = torch.from_numpy(np.stack([self.clip(rng, turn) for turn in turns]))
            yield scaled(clips, torch.float64) if self.ready else clips, torch.from_numpy(turns)

    def clip(self, rng, backwards):
        film = self.films[rng.integers(FILMS)]
        start = rng.integers(LENGTH - FRAMES)
        top, left = rng.integers(HEIGHT - SIDE), rng.integers(WIDTH - SIDE)
        clip = film[start : start + FRAMES, :, top : top + SIDE, left : left + SIDE]
        return clip[::-1] if backwards else clip


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv3d(3, 12, (2, 12, 12), stride=(2, 12, 12))
        self.head = nn.Sequential(
            nn.ReLU(), nn.AdaptiveAvgPool3d((6, 2, 2)), nn.Flatten(), nn.Linear(288, 2)
        )

    def forward(self, clips):
        if clips.dtype == torch.uint8:
            clips = scaled(clips, torch.float32)
        return self.head(self.patches(clips.float().transpose(1, 2)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    options = {
        "batch_size": None,
        "num_workers": 4,
        "persistent_workers": True,
        "multiprocessing_context": "forkserver",
    }
    training = DataLoader(Clips(1, 32, not args.without), **options)
    validation = DataLoader(Clips(2, 4, not args.without), **{**options, "num_workers": 1})
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for clips, turns in training:
            loss = nn.functional.cross_entropy(model(clips), turns)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = [
                (model(clips).argmax(1) == turns).float().mean() for clips, turns in validation
            ]
        print(f"epoch {epoch}: loss {loss:.3f}, right {torch.stack(right).mean():.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, validation


if __name__ == "__main__":
    main()
