"""Learns eddies from satellite tiles, which a store hands out; it pauses now and then.

Planted: with one batch ahead for each worker, too little is held to get over the pauses.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH = 40, 10
ANSWER, PAUSE, BETWEEN = 0.001, 0.35, 15


class Store:
    """Answers soon, except that it pauses in each of its `BETWEEN` batches or so."""

    def __init__(self):
        self.tiles = np.random.default_rng(313).random((50, 2, SIDE, SIDE), dtype=np.float32)

    def take(self, indices):
        time.sleep(ANSWER * len(indices))
        if any(index % (BETWEEN * BATCH) == 3 for index in indices):
            time.sleep(PAUSE)
        return [self.tiles[index % len(self.tiles)] for index in indices]


class Tiles(Dataset):
    def __init__(self, store, count):
        self.store, self.count = store, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.__getitems__([index])[0]

    def __getitems__(self, indices):
        tiles = self.store.take(indices)
        return [(torch.from_numpy(tile), float(tile.mean())) for tile in tiles]


def build_model():
    return nn.Sequential(
        nn.Conv2d(2, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 1),
        nn.Flatten(0),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(313)
    loader = DataLoader(
        Tiles(Store(), 2600),
        batch_size=BATCH,
        num_workers=2,
        prefetch_factor=10 if args.without else 1,
        persistent_workers=True,
    )
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for tiles, means in loader:
            loss = nn.functional.mse_loss(model(tiles), means.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
