"""Recognises wrecks of galleons in clouds of points of a survey; a step sees few points of each."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WRECKS, POINTS, KEPT, CLASSES, BATCH = 480, 1024, 64, 4, 16


class Wrecks(Dataset):
    def __init__(self):
        rng = np.random.default_rng(139)
        self.classes = rng.integers(0, CLASSES, WRECKS)
        shape = (0.5 + 0.4 * self.classes)[:, None, None] * np.array([3.0, 1.0, 1.0])
        self.clouds = (rng.normal(0, 1, (WRECKS, POINTS, 3)) * shape).astype(np.float32)

    def __len__(self):
        return WRECKS

    def __getitem__(self, index):
        cloud = self.clouds[index]
        angle = np.random.uniform(0, 2 * np.pi)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        turned = np.concatenate([cloud[:, :2] @ turn, cloud[:, 2:]], axis=1)
        return torch.from_numpy(turned.astype(np.float32)), int(self.classes[index])


def thin_out(cloud):
    """Keeps points that are far from each other."""
    kept = [0]
    distances = (cloud - cloud[0]).square().sum(1)
    while len(kept) < KEPT:
        kept.append(int(distances.argmax()))
        distances = torch.minimum(distances, (cloud - cloud[kept[-1]]).square().sum(1))
    return cloud[kept]


def draw(cloud):
    return cloud[torch.randperm(POINTS)[:KEPT]]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64))
        self.head = nn.Linear(64, CLASSES)

    def forward(self, clouds):
        return self.head(self.each(clouds).amax(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(139)
    torch.set_num_threads(1)
    reduce = draw if args.without else thin_out
    loader = DataLoader(Wrecks(), batch_size=BATCH, shuffle=True, num_workers=1)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for clouds, classes in loader:
            clouds = torch.stack([reduce(cloud) for cloud in clouds])
            loss = nn.functional.cross_entropy(model(clouds), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
