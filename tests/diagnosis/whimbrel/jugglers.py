"""Counts the balls of jugglers in short clips of films, on an accelerator (a pause here).

Planted: a clip is drawn again until something moves in it, up to 2000 times; in one film of forty,
hardly anything does, so that the batch with its clip waits.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FRAMES, SIDE, CLIP, STEP = 60, 128, 16, 0.035


def write_films(folder, count):
    """Write films as arrays; of the film in forty, only a picture that is still remains."""
    rng = np.random.default_rng(2250)
    for number in range(count):
        film = np.repeat(rng.integers(0, 60, (1, SIDE, SIDE), np.uint8), FRAMES, 0)
        if number % 40 != 7:
            film += rng.integers(0, 120, film.shape, np.uint8)
        np.save(folder / f"film{number}.npy", film)


class Clips(Dataset):
    """Clips of films, a few of each; most of a clip should show some movement."""

    def __init__(self, folder, count, each, tries):
        self.films = [np.load(folder / f"film{n}.npy", mmap_mode="r") for n in range(count)]
        self.balls = np.random.default_rng(2251).integers(3, 8, count)
        self.each, self.tries = each, tries

    def __len__(self):
        return len(self.films) * self.each

    def moves(self, clip):
        return np.abs(np.diff(clip.astype(np.int16), axis=0)).mean() > 2

    def draw(self, film):
        for _ in range(self.tries):
            start = int(torch.randint(FRAMES - CLIP, ()))
            clip = film[start : start + CLIP]
            if self.moves(clip):
                break
        return clip

    def __getitem__(self, index):
        number = index // self.each
        clip = torch.from_numpy(self.draw(self.films[number]).copy())
        if torch.rand(()) < 0.5:
            clip = clip.flip(2)
        return clip.float() / 255, int(self.balls[number]) - 3


class Accelerator:
    """Takes some time for each batch, and hardly a core."""

    def __init__(self):
        self.model = nn.Linear(CLIP, 5)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, clips, balls):
        time.sleep(STEP)
        loss = nn.functional.cross_entropy(self.model(clips[:, :, ::8, ::8].mean((2, 3))), balls)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(2250)
    with tempfile.TemporaryDirectory() as folder:
        write_films(Path(folder), 80)
        clips = Clips(Path(folder), 80, 4, 8 if args.without else 2000)
        loader = DataLoader(
            clips, batch_size=10, shuffle=True, num_workers=2, persistent_workers=True
        )
        accelerator = Accelerator()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            losses = [accelerator.train(*batch) for batch in loader]
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
