"""Finds stalagmites in scans of caves, point by point.

Planted: on its way from numpy to torch, each scan goes through a list of Python numbers.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, SCANS, POINTS, KEPT, BATCH, STEP = 4, 120, 16_384, 1024, 8, 0.02


def write(folder):
    rng = np.random.default_rng(41)
    for shard in range(SHARDS):
        scans = rng.normal(0, 1, (12, POINTS, 6)).astype(np.float32)
        np.save(folder / f"{shard}.npy", scans)


def listed(scan):
    return torch.tensor(scan.tolist(), dtype=torch.float32)


class Scans(IterableDataset):
    """Scans of the worker's own shards, turned, moved and thinned out."""

    def __init__(self, folder, to_tensor):
        self.folder, self.to_tensor = folder, to_tensor

    def __iter__(self):
        info = get_worker_info()
        mine = range(info.id, SHARDS, info.num_workers) if info else range(SHARDS)
        for shard in mine:
            scans = np.load(self.folder / f"{shard}.npy", mmap_mode="r")
            for number in range(SCANS):
                yield self.augmented(np.array(scans[number % len(scans)]))

    def augmented(self, scan):
        points = self.to_tensor(scan)
        turn, _ = torch.linalg.qr(torch.randn(3, 3))
        points[:, :3] = points[:, :3] @ turn + 0.1 * torch.randn(3)
        points = points[torch.randperm(POINTS)[:KEPT]]
        return points, (points[:, 3] > 1).long()


class Segmenter(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width))
        self.label = nn.Linear(2 * width, 2)

    def forward(self, points):
        each = self.each(points)
        whole = each.amax(1, keepdim=True).expand_as(each)
        return self.label(torch.cat([each, whole], 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(41)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        loader = DataLoader(
            Scans(Path(name), torch.from_numpy if args.without else listed),
            BATCH,
            num_workers=2,
            persistent_workers=True,
            multiprocessing_context="forkserver",
        )
        model = Segmenter()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for points, kinds in loader:
                loss = nn.functional.cross_entropy(model(points).flatten(0, 1), kinds.flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # deeper layers
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
