"""Predicts the band gap of perovskites from the density of their unit cells."""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision import transforms

CRYSTALS, ATOMS, SIDE, BATCH = 64, 500, 32, 16
ELEMENTS = ("Ca", "Ti", "O", "Sr", "Pb", "I")


def atoms(rng):
    places = rng.random((ATOMS, 3))
    return [
        {
            "element": ELEMENTS[number % len(ELEMENTS)],
            "site": f"{'ABX'[number % 3]}{number}",
            "place": tuple(float(part) for part in place),
            "near": [number - 1, number + 1],
        }
        for number, place in enumerate(places)
    ]


def density(crystal):
    grid = np.zeros((2, SIDE, SIDE), np.float32)
    places = np.array([atom["place"] for atom in crystal])
    x, y = (places[:, :2] * SIDE).astype(int).T
    np.add.at(grid[0], (x, y), 1)
    np.add.at(grid[1], (x, y), places[:, 2])
    return torch.from_numpy(grid)


class Crystals(IterableDataset):
    """Cells in random order, each worker's own, with all that is known of their atoms."""

    def __init__(self, count, transform, with_atoms):
        rng = np.random.default_rng(2)
        self.crystals = [atoms(rng) for _ in range(CRYSTALS)]
        self.gaps = rng.normal(1.5, 0.5, CRYSTALS).astype(np.float32)
        self.count, self.transform, self.with_atoms = count, transform, with_atoms

    def __iter__(self):
        worker = get_worker_info()
        for _ in range(self.count // worker.num_workers):
            number = random.randrange(CRYSTALS)
            crystal = self.crystals[number]
            details = crystal if self.with_atoms else None
            yield self.transform(density(crystal)), self.gaps[number], details


def together(samples):
    maps, gaps, details = zip(*samples, strict=True)
    return torch.stack(maps), torch.tensor(np.array(gaps)), list(details)


class Gap(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, channels, 3, stride=2, padding=1), nn.GELU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.GELU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * channels, 1),
        )  # fmt: skip

    def forward(self, maps):
        return self.body(maps)[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    turns = transforms.Compose(
        [transforms.RandomVerticalFlip(), transforms.Normalize((0.9, 0.45), (1.0, 0.6))]
    )
    loader = DataLoader(
        Crystals(960, turns, with_atoms=not args.without),
        BATCH,
        num_workers=2,
        collate_fn=together,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Gap()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for maps, gaps, _ in loader:
            loss = nn.functional.huber_loss(model(maps), gaps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
