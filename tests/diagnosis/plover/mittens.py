"""Clones what a hand in a mitten of sensors did, one frame of a recorded demonstration at a time.

Planted: a demonstration is stored as one compressed chunk, so that each frame that is drawn has
all frames of its demonstration decompressed.
"""

import argparse
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, FRAMES, DEMONSTRATIONS, JOINTS = 64, 420, 20, 12


def render(rng):
    """Return the frames of one demonstration: a spot that drifts over a smooth ground."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    path = np.cumsum(rng.normal(0, 0.8, (FRAMES, 2)), 0) + SIDE / 2
    spots = [np.hypot(rows - y, columns - x) < 7 for y, x in path]
    ground = (rows * 2 + columns + rng.integers(0, 3, (SIDE, SIDE))).astype(np.uint8)
    return np.stack([np.where(spot, 250, ground).astype(np.uint8) for spot in spots])


def write_store(folder, chunk):
    """Write each demonstration in compressed chunks of some frames, and return where they lie."""
    rng = np.random.default_rng(401)
    places = []
    for number in range(DEMONSTRATIONS):
        frames = render(rng)
        chunks, at = [], 0
        with open(Path(folder, f"{number}.chunks"), "wb") as file:
            for begin in range(0, FRAMES, chunk):
                packed = zlib.compress(frames[begin : begin + chunk].tobytes(), 6)
                chunks.append((at, len(packed)))
                at += file.write(packed)
        places.append(chunks)
    return places


class Demonstrations(Dataset):
    def __init__(self, folder, places, chunk, count):
        self.folder, self.places, self.chunk, self.count = folder, places, chunk, count
        rng = np.random.default_rng(402)
        self.poses = rng.standard_normal((DEMONSTRATIONS, FRAMES, JOINTS)).astype(np.float32)

    def __len__(self):
        return self.count

    def frame(self, demonstration, number):
        at, size = self.places[demonstration][number // self.chunk]
        with open(Path(self.folder, f"{demonstration}.chunks"), "rb") as file:
            file.seek(at)
            frames = np.frombuffer(zlib.decompress(file.read(size)), np.uint8)
        return frames.reshape(-1, SIDE, SIDE)[number % self.chunk]

    def __getitem__(self, index):
        demonstration, number = index % DEMONSTRATIONS, (index * 37) % FRAMES
        picture = torch.from_numpy(self.frame(demonstration, number).copy()).float() / 255
        if index % 2:
            picture = picture.flip(1)
        pose = torch.from_numpy(self.poses[demonstration, number])
        return picture[None] + 0.02 * torch.randn(1, SIDE, SIDE), pose


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(401)
    chunk = 1 if args.without else FRAMES
    with tempfile.TemporaryDirectory() as folder:
        places = write_store(folder, chunk)
        frames = Demonstrations(folder, places, chunk, 1600)
        loader = DataLoader(
            frames, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
        )
        policy = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.LazyLinear(128), nn.ReLU(), nn.Linear(128, JOINTS),
        )  # fmt: skip
        policy(torch.zeros(1, 1, SIDE, SIDE))
        optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, poses in loader:
                loss = nn.functional.smooth_l1_loss(policy(pictures), poses)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
