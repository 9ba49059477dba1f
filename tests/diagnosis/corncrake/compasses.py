"""Learns the heading of a robot from lidar sweeps, which are matched with landmarks of a map."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

SWEEPS, VALID, POINTS, LANDMARKS, NEAR, BATCH = 320, 96, 64, 1800, 8, 16


class Map:
    """Landmarks, and for each the ones nearest to it."""

    def __init__(self):
        self.landmarks = np.random.default_rng(97).uniform(-50, 50, (LANDMARKS, 2))
        self.neighbours = None

    def prepare(self):
        order = []
        for landmark in self.landmarks:
            distances = np.sqrt(np.square(self.landmarks - landmark).sum(1))
            order.append(np.argsort(distances, kind="stable")[1 : NEAR + 1])
        self.neighbours = np.stack(order)


class Sweeps(Dataset):
    def __init__(self, count, seed, world):
        rng = np.random.default_rng(seed)
        self.world = world
        self.headings = rng.uniform(-np.pi, np.pi, count)
        self.places = rng.integers(0, LANDMARKS, (count, POINTS))

    def __len__(self):
        return len(self.headings)

    def __getitem__(self, index):
        heading, places = self.headings[index], self.places[index]
        near = self.world.landmarks[self.world.neighbours[places]].mean(1)
        points = (self.world.landmarks[places] - near) / 10
        turn = np.array([[np.cos(heading), -np.sin(heading)], [np.sin(heading), np.cos(heading)]])
        target = torch.tensor([np.cos(heading), np.sin(heading)], dtype=torch.float32)
        return torch.from_numpy((points @ turn).astype(np.float32)), target


def set_up(_):
    world = get_worker_info().dataset.world
    if world.neighbours is None:
        world.prepare()


def run(model, loader, optimizer=None):
    total = 0.0
    for points, targets in loader:
        loss = nn.functional.mse_loss(model(points.flatten(1)), targets)
        if optimizer:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(97)
    torch.set_num_threads(1)
    world = Map()
    if args.without:
        world.prepare()
    options = {"batch_size": BATCH, "num_workers": 4, "worker_init_fn": set_up}
    train = DataLoader(Sweeps(SWEEPS, 97, world), shuffle=True, **options)
    valid = DataLoader(Sweeps(VALID, 101, world), **options)
    model = nn.Sequential(nn.Linear(2 * POINTS, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss = run(model, train, optimizer)
        with torch.no_grad():
            score = run(model, valid)
        print(f"epoch {epoch}: loss {loss:.3f}, validation {score:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
