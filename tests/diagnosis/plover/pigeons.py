"""Follows pigeons on their way home, from three archives that a worker each reads.

Planted: the archive of the third worker was never converted: its tracks are text, compressed with
bzip2, while the others' are arrays.
"""

import argparse
import bz2
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

TRACKS, FIXES = 240, 3000


def write_archives(folder, converted):
    rng = np.random.default_rng(557)
    for number in range(3):
        tracks = rng.normal(0, 0.01, (60, FIXES, 2)).cumsum(1).astype(np.float32)
        if number < 2 or converted:
            np.save(Path(folder, f"{number}.npy"), tracks)
            continue
        for place, track in enumerate(tracks):
            lines = "\n".join(f"{east:.5f};{north:.5f}" for east, north in track)
            Path(folder, f"{number}-{place}.bz2").write_bytes(bz2.compress(lines.encode()))


def parse(packed):
    lines = bz2.decompress(packed).decode().split("\n")
    return np.array([[float(part) for part in line.split(";")] for line in lines], np.float32)


class Tracks(IterableDataset):
    def __init__(self, folder):
        self.folder = folder

    def archive(self, number):
        path = Path(self.folder, f"{number}.npy")
        if path.exists():
            tracks = np.load(path, mmap_mode="r")
            yield from (np.array(tracks[at % len(tracks)]) for at in range(TRACKS))
        else:
            for at in range(TRACKS):
                yield parse(Path(self.folder, f"{number}-{at % 60}.bz2").read_bytes())

    def __iter__(self):
        for at, track in enumerate(self.archive(get_worker_info().id)):
            steps = np.diff(track[::8], axis=0)
            scaled = steps / (np.abs(steps).max() + 1e-6)
            yield torch.from_numpy(scaled.T.copy()), at % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(557)
    with tempfile.TemporaryDirectory() as folder:
        write_archives(folder, args.without)
        loader = DataLoader(Tracks(folder), batch_size=10, num_workers=3, persistent_workers=True)
        model = nn.Sequential(
            nn.Conv1d(2, 32, 9, stride=2), nn.ReLU(), nn.Conv1d(32, 32, 9, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 2),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for steps, home in loader:
                loss = nn.functional.cross_entropy(model(steps), home)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
