"""Forecasts rain from tiles of a remote store, which answers after a few milliseconds."""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ANSWER_S = 0.006


class TileStore:
    """An object store: each request takes its time, however many are under way."""

    def __init__(self, seed=17):
        self.tiles = torch.rand(60, 4, 40, 40, generator=torch.Generator().manual_seed(seed))

    def get(self, key):
        time.sleep(ANSWER_S)
        return self.tiles[key % 60]


class Tiles(Dataset):
    """Tiles and the rain of the next hour, asked for one after the other or all at once."""

    def __init__(self, store, at_once, count=960):
        self.store, self.count, self.at_once = store, count, at_once
        self.pool = None

    def __len__(self):
        return self.count

    def __getitems__(self, indices):
        if not self.at_once:
            tiles = [self.store.get(index) for index in indices]
        else:
            self.pool = self.pool or ThreadPoolExecutor(len(indices))
            tiles = list(self.pool.map(self.store.get, indices))
        return [(tile - 0.5, tile[0].mean()) for tile in tiles]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    loader = DataLoader(
        Tiles(TileStore(), at_once=args.without),
        batch_size=24, shuffle=True, num_workers=1, persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(4, 24, 3), nn.ReLU(), nn.Conv2d(24, 24, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for tiles, rain in loader:
            loss = nn.functional.mse_loss(model(tiles).squeeze(1), rain)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
