"""Streams tracks of godwits from a bucket in the cloud, part by part.

Planted: each part of a track is asked for when the one before has come, and the bucket takes 20 ms
to answer. (Without: the parts come from a local copy.)
"""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

TRACKS, PARTS, POINTS = 360, 2, 60


class Bucket:
    """Objects by their names, after the time of a request."""

    def __init__(self, latency):
        self.latency = latency
        rng = np.random.default_rng(151)
        self.objects = [rng.standard_normal((POINTS, 4)).astype(np.float32) for _ in range(40)]
        self.requests = 0

    def get(self, name):
        if self.latency:
            time.sleep(self.latency)
        self.requests += 1
        return self.objects[sum(map(ord, name)) % 40]


class Tracks(IterableDataset):
    """Tracks in a new order each time, a part of them for each worker."""

    def __init__(self, bucket, seed=0):
        self.bucket, self.seed = bucket, seed

    def names(self):
        numbers = list(range(TRACKS))
        random.Random(self.seed).shuffle(numbers)
        worker = get_worker_info()
        return numbers[worker.id :: worker.num_workers] if worker else numbers

    def smooth(self, track):
        sums = np.cumsum(np.pad(track, ((3, 0), (0, 0))), 0)
        return (sums[3:] - sums[:-3]) / 3

    def __iter__(self):
        for number in self.names():
            parts = [self.bucket.get(f"tracks/{number}/{part}") for part in range(PARTS)]
            track = self.smooth(np.concatenate(parts))
            yield torch.from_numpy(track[:-1].copy()), torch.from_numpy(track[1:].copy())


class Following(nn.Module):
    def __init__(self, size=48):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(4, size, 7), nn.ReLU(), nn.Conv1d(size, size, 1), nn.ReLU()
        )
        self.leave = nn.Conv1d(size, 4, 1)

    def forward(self, tracks):
        padded = nn.functional.pad(tracks.transpose(1, 2), (6, 0))
        return self.leave(self.layers(padded)).transpose(1, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(151)
    tracks = Tracks(Bucket(0 if args.without else 0.02))
    loader = DataLoader(tracks, batch_size=12, num_workers=2)
    model = Following()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        tracks.seed = epoch
        for before, after in loader:
            loss = nn.functional.mse_loss(model(before), after)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
