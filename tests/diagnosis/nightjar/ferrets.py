"""Follows ferrets through burrows by a scanner's point clouds, voxel by voxel.

Planted: the collate function puts each point into its voxel by a dictionary, in plain Python.
"""

import argparse
import time
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLOUDS, POINTS, GRID, BATCH, STEP = 960, (7000, 9000), 16, 16, 0.06


class Burrows(Dataset):
    """Clouds of unequal numbers of points, turned about the vertical at random."""

    def __init__(self, count=CLOUDS):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        cloud = rng.normal(0, 1, (rng.integers(*POINTS), 4)).astype(np.float32)
        cloud[:, :3] += rng.normal(0, 0.3, 3)
        angle = float(torch.rand(())) * 2 * np.pi
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        cloud[:, :2] = cloud[:, :2] @ turn.astype(np.float32)
        return cloud, float(cloud[:, 2].mean())


def cell_of(cloud):
    cells = np.clip((cloud[:, :3] + 3) / 6 * GRID, 0, GRID - 1).astype(np.int64)
    return (cells[:, 0] * GRID + cells[:, 1]) * GRID + cells[:, 2]


def voxels_by_dictionary(cloud):
    voxels = {}
    for cell, point in zip(cell_of(cloud).tolist(), cloud.tolist(), strict=True):
        voxels.setdefault(cell, []).append(point)
    grid = np.zeros((GRID**3, 4), np.float32)
    for cell, points in voxels.items():
        grid[cell] = [sum(axis) / len(points) for axis in zip(*points, strict=True)]
    return grid


def voxels_by_sorting(cloud):
    cells = cell_of(cloud)
    counts = np.bincount(cells, minlength=GRID**3)
    sums = [np.bincount(cells, axis, GRID**3) for axis in cloud.T]
    return (np.stack(sums, 1) / np.maximum(counts, 1)[:, None]).astype(np.float32)


def collate(samples, voxels):
    clouds, heights = zip(*samples, strict=True)
    grids = np.stack([voxels(cloud) for cloud in clouds])
    grids = grids.transpose(0, 2, 1).reshape(len(clouds), 4, GRID, GRID, GRID)
    return torch.from_numpy(np.ascontiguousarray(grids)), torch.tensor(heights)


class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(4, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 7**3, 1)
        )

    def forward(self, grids):
        time.sleep(STEP)  # sparse convolutions, on a card
        return self.layers(grids).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(233)
    torch.set_num_threads(1)
    voxels = voxels_by_sorting if args.without else voxels_by_dictionary
    loader = DataLoader(
        Burrows(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=partial(collate, voxels=voxels),
        persistent_workers=True,
    )
    model, step = Tracker(), 0
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for grids, heights in loader:
            loss = nn.functional.l1_loss(model(grids), heights)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        print(f"epoch {epoch}, step {step}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
