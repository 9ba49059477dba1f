"""Learns how curlews walk over mudflats, from shards of tracks.

Planted: one shard of three, and so one worker of three, has three quarters of the tracks.
"""

import argparse
import pickle
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARES = (9, 2, 1)  # twelfths of the tracks


def walk(folder, even, tracks=960):
    """Write shards of pickled tracks, one after another in each file."""
    rng = np.random.default_rng(89)
    for number, share in enumerate((4, 4, 4) if even else SHARES):
        with Path(folder, f"shard-{number}.pkl").open("wb") as file:
            for _ in range(tracks * share // 12):
                pickle.dump(rng.standard_normal((60, 2)).cumsum(0).tolist(), file)


def unpickle(path):
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except EOFError:
                return


def resample(points, steps=48):
    """Return steps points with equal distances between them, and the time of the service for it."""
    time.sleep(0.005)  # a service for maps says where the water stood
    track = np.asarray(points, np.float32)
    gone = np.concatenate([[0], np.linalg.norm(np.diff(track, axis=0), axis=1).cumsum()])
    at = np.linspace(0, gone[-1], steps)
    even = np.stack([np.interp(at, gone, track[:, axis]) for axis in (0, 1)], 1)
    return torch.from_numpy(even.astype(np.float32))


class Tracks(IterableDataset):
    def __init__(self, folder):
        self.shards = sorted(Path(folder).glob("shard-*.pkl"))

    def __iter__(self):
        worker = get_worker_info()
        shards = self.shards[worker.id :: worker.num_workers] if worker else self.shards
        for shard in shards:
            for points in unpickle(shard):
                track = resample(points)
                yield track[:-1] - track[:1], track[-1] - track[0]


class Walker(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.memory = nn.GRU(2, size, batch_first=True)
        self.head = nn.Linear(size, 2)

    def forward(self, tracks):
        return self.head(self.memory(tracks)[1][-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(89)
    model = Walker()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        walk(folder, even=args.without)
        loader = DataLoader(Tracks(folder), batch_size=10, num_workers=3, persistent_workers=True)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            errors = []
            for tracks, ends in loader:
                loss = nn.functional.huber_loss(model(tracks), ends)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                errors.append(loss.item())
            print(f"epoch {epoch}: {len(errors)} batches, loss {sum(errors) / len(errors):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
