"""Learns from dives of mergansers, in shards as the logger wrote them.

Planted: the shards are dealt out by their number, and the one of the first winter has more dives
than all others, so one of two workers makes nearly all of them. (Without: dives are dealt out.)
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIZES = [1100, 60, 50, 70, 60, 60]
DEPTHS = 512


class Dives(IterableDataset):
    """Dives of the shards of a folder."""

    def __init__(self, folder, by_dive):
        self.paths = sorted(Path(folder).glob("*.npy"))
        self.by_dive = by_dive

    def shards(self):
        worker = get_worker_info()
        number, count = (worker.id, worker.num_workers) if worker else (0, 1)
        for place, path in enumerate(self.paths):
            shard = np.load(path, mmap_mode="r")
            if self.by_dive:
                yield shard[number::count]
            elif place % count == number:
                yield shard

    def profile(self, dive):
        """Return how long the bird was in each layer, and its fastest descents."""
        depth = np.cumsum(dive)
        layers = np.histogram(depth, bins=32, range=(-40, 40))[0]
        slopes = [np.polyfit(np.arange(16), depth[at : at + 16], 1)[0] for at in range(0, 480, 16)]
        return np.concatenate([layers / len(dive), np.sort(slopes)[:16]]).astype(np.float32)

    def __iter__(self):
        for shard in self.shards():
            for dive in shard:
                yield torch.from_numpy(self.profile(dive)), float(dive[0] > 0)


def write_shards(folder):
    rng = np.random.default_rng(179)
    for number, size in enumerate(SIZES):
        dives = rng.standard_normal((size, DEPTHS)).astype(np.float32)
        np.save(Path(folder, f"winter-{number:02d}.npy"), dives)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(179)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder)
        loader = DataLoader(
            Dives(folder, by_dive=args.without),
            batch_size=10,
            num_workers=2,
            persistent_workers=True,
        )
        model = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for profiles, caught in loader:
                found = model(profiles).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(found, caught.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
