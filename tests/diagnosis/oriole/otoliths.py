"""Reads the age of a fish from the rings of its otoliths.

Nothing planted: rings are measured once, at the start, which takes seconds; after that a sample is
a look-up, and the step sets the pace.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FISH, RAYS, LENGTH, BATCH, STEP = 1200, 24, 64, 24, 0.12


def measured(seed):
    """The profile of rings along some rays, smoothed point by point."""
    rng = np.random.default_rng(seed)
    profile = (rng.random((RAYS, LENGTH)) + np.sin(np.arange(LENGTH) / (2 + seed % 6))).tolist()
    for _ in range(4):
        for ray in profile:
            for place in range(1, LENGTH - 1):
                ray[place] = sum(ray[place - 1 : place + 2]) / 3
    return torch.tensor(profile)


class Otoliths(Dataset):
    def __init__(self, count):
        begin = time.perf_counter()
        self.rings = [measured(seed) for seed in range(count)]
        print(f"measured {count} in {time.perf_counter() - begin:.1f} s")

    def __len__(self):
        return len(self.rings)

    def __getitem__(self, index):
        rings = self.rings[index].roll(int(torch.randint(RAYS, ())), 0)
        return rings + 0.05 * torch.randn_like(rings), float(index % 6)


def train(model, loader, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(epochs):
        total = 0.0
        for rings, ages in loader:
            loss = nn.functional.smooth_l1_loss(model(rings).squeeze(1), ages.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the large network
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(73)
    torch.set_num_threads(1)
    loader = DataLoader(Otoliths(FISH), BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(RAYS * LENGTH, 64), nn.ReLU(), nn.Linear(64, 1))
    train(model, loader, args.epochs)
    del loader


if __name__ == "__main__":
    main()
