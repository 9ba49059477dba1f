"""Follows lizards with cameras: a stream of frames, from films that a base class shares out.

Planted: the base class calls `own`, to leave to each worker what is its own; the method had another
name before, which the class of frames still overrides, so that each worker reads all films.
"""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FILMS, FRAMES, SIDE = 12, 15, 32


class Stream(IterableDataset):
    """Samples of sources, in their order; a subclass says which of them a worker reads."""

    def __init__(self, sources):
        self.sources = sources

    def own(self, sources):
        return sources

    def __iter__(self):
        for source in self.own(self.sources):
            yield from self.samples(source)


class Frames(Stream):
    def part_of(self, films):
        info = get_worker_info()
        return films[info.id :: info.num_workers] if info else films

    def samples(self, film):
        rng = np.random.default_rng(1123 + film)
        for number in range(FRAMES):
            time.sleep(0.012)
            frame = rng.random((SIDE, SIDE), dtype=np.float32)
            down, right = 2 + number % 24, 2 + number * 5 % 24
            frame[down : down + 3, right : right + 6] += 1
            place = torch.tensor([down / SIDE, right / SIDE])
            yield torch.from_numpy(frame), place


class OwnFrames(Frames):
    own = Frames.part_of


class Accelerator:
    """Trains for some time with each batch, and needs no core."""

    def __init__(self):
        self.weights = torch.zeros(SIDE * 2, 2)

    def train(self, frames, places):
        time.sleep(0.13)
        profile = torch.cat([frames.mean(1), frames.mean(2)], 1)
        error = places - profile @ self.weights
        self.weights += 0.01 * profile.T @ error / len(places)
        return error.square().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1123)
    kind = OwnFrames if args.without else Frames
    loader = DataLoader(kind(range(FILMS)), batch_size=12, num_workers=3, persistent_workers=True)
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for frames, places in loader:
            error = accelerator.train(frames, places)
        print(f"epoch {epoch}: error {error:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
