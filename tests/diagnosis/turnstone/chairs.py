"""Tells chairs from tables by clouds of points, with transforms from a library of the house.

Planted: a transform finds each point's normal from its neighbours, among the distances of all
points to all, though the model has not read normals for long.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose

POINTS = 700


class Centre:
    def __call__(self, cloud):
        cloud["points"] = cloud["points"] - cloud["points"].mean(0)
        return cloud


class Turn:
    """Turns a cloud about the vertical axis."""

    def __call__(self, cloud):
        angle = float(torch.rand(()) * 2 * np.pi)
        turn = torch.eye(3)
        turn[:2, :2] = torch.tensor(
            [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        )
        cloud["points"] = cloud["points"] @ turn
        return cloud


class Normals:
    """Adds the direction in which a point's neighbours differ least."""

    def __init__(self, neighbours=16):
        self.neighbours = neighbours

    def __call__(self, cloud):
        points = cloud["points"]
        near = torch.cdist(points, points).topk(self.neighbours, largest=False).indices
        around = points[near] - points[:, None]
        cloud["normals"] = torch.linalg.eigh(around.transpose(1, 2) @ around).eigenvectors[..., 0]
        return cloud


class Jitter:
    def __call__(self, cloud):
        cloud["points"] = cloud["points"] + 0.01 * torch.randn_like(cloud["points"])
        return cloud


class Furniture(Dataset):
    """A seat or a plate on four legs, and a back for a chair."""

    def __init__(self, count, transform):
        self.seeds, self.transform = range(count), transform

    def __len__(self):
        return len(self.seeds)

    def __getitem__(self, index):
        rng = np.random.default_rng(1049 + index)
        points = rng.random((POINTS, 3), dtype=np.float32)
        points[: POINTS // 2, 2] = 0.5
        if index % 2:
            points[: POINTS // 5, 2] = 0.5 + points[: POINTS // 5, 1] / 2
            points[: POINTS // 5, 1] = 0
        cloud = self.transform({"points": torch.from_numpy(points)})
        return cloud["points"], index % 2


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU())
        self.head = nn.Linear(64, 2)

    def forward(self, points):
        return self.head(self.each(points).amax(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1049)
    steps = [Centre(), Turn(), Normals(), Jitter()]
    if args.without:
        del steps[2]
    loader = DataLoader(
        Furniture(1000, Compose(steps)), batch_size=20, shuffle=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    model = PointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for points, tables in loader:
            loss = nn.functional.cross_entropy(model(points), tables)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
