"""Tells the workshops of amphorae from the scanned points of their sherds."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

SHERDS, POINTS, HEIGHT, TURN, WORKSHOPS, BATCH = 1600, 60_000, 32, 64, 8, 32


class Sherds(Dataset):
    """A sherd rolled out into a map of its surface, where it is large enough to be of use."""

    def __init__(self, soon):
        rng = np.random.default_rng(50)
        self.scans = rng.normal(0, 1, (10, POINTS, 3)).astype(np.float32)
        self.sizes = rng.uniform(0, 1, SHERDS)
        self.soon = soon

    def surface(self, index):
        x, y, z = self.scans[index % len(self.scans)].T
        angle = np.arctan2(y, x) + index
        height = np.clip((z + 3) / 6 * HEIGHT, 0, HEIGHT - 1).astype(int)
        turn = (angle / (2 * np.pi) % 1 * TURN).astype(int) % TURN
        place = height * TURN + turn
        away = np.bincount(place, np.hypot(x, y), HEIGHT * TURN)
        count = np.bincount(place, minlength=HEIGHT * TURN)
        return (away / np.maximum(count, 1)).reshape(1, HEIGHT, TURN).astype(np.float32)

    def __len__(self):
        return SHERDS

    def __getitem__(self, index):
        if self.soon and self.sizes[index] < 0.72:
            return None
        sherd = torch.from_numpy(self.surface(index)), index % WORKSHOPS
        return sherd if self.sizes[index] >= 0.72 else None


def of_use(sherds):
    """A batch of those that are large enough."""
    return default_collate([sherd for sherd in sherds if sherd is not None])


def network(channels=32):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(2 * channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * channels, WORKSHOPS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(50)
    loader = DataLoader(
        Sherds(soon=args.without),
        BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=of_use,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for surfaces, workshops in loader:
            loss = nn.functional.cross_entropy(model(surfaces), workshops)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
