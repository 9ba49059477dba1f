"""Maps the water of reservoirs in tiles of a satellite, with the distance to the shore as a band.

Planted: the transform that measures the distance goes over all pixels twice in plain Python, for
each sample; it could be done once for each tile.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TILES, SIDE, BATCH, STEP = 576, 72, 24, 0.06
FAR = 2 * SIDE


def turn(bands):
    return np.rot90(bands, int(torch.randint(4, ())), (1, 2)).copy()


def haze(bands):
    bands = bands.copy()
    bands[:3] = bands[:3] * (0.8 + 0.2 * float(torch.rand(()))) + 0.1
    return bands


class ShoreDistance:
    """Appends a band: the steps, also slanting ones, from each pixel to the nearest water."""

    BEFORE = ((-1, -1), (-1, 0), (-1, 1), (0, -1))

    def sweep(self, distance, rows, columns, sign):
        for row in rows:
            for column in columns:
                for down, right in self.BEFORE:
                    other = row + sign * down, column + sign * right
                    if 0 <= other[0] < SIDE and 0 <= other[1] < SIDE:
                        away = distance[other[0]][other[1]] + 1
                        distance[row][column] = min(distance[row][column], away)

    def __call__(self, bands):
        distance = np.where(bands[0] < 0.3, 0, FAR).tolist()
        self.sweep(distance, range(SIDE), range(SIDE), 1)
        self.sweep(distance, range(SIDE - 1, -1, -1), range(SIDE - 1, -1, -1), -1)
        return np.concatenate([bands, np.array(distance, np.float32)[None] / FAR])


class Tiles(Dataset):
    def __init__(self, once):
        rng = np.random.default_rng(1201)
        small = rng.random((32, 3, SIDE // 8, SIDE // 8), dtype=np.float32)
        self.tiles = small.repeat(8, 2).repeat(8, 3)
        self.shares = (self.tiles[:, 0] < 0.3).mean((1, 2), dtype=np.float32)
        self.changes = [turn, haze] if once else [ShoreDistance(), turn, haze]
        if once:
            self.tiles = [ShoreDistance()(tile) for tile in self.tiles]

    def __len__(self):
        return TILES

    def __getitem__(self, index):
        bands = self.tiles[index % len(self.tiles)]
        for change in self.changes:
            bands = change(bands)
        return torch.from_numpy(bands), self.shares[index % len(self.tiles)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1201)
    torch.set_num_threads(1)
    data = Tiles(once=args.without)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(4 * 81, 16), nn.ReLU())
    model.append(nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for tiles, share in loader:
            loss = nn.functional.mse_loss(model(tiles).squeeze(1), share)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of the U-Net, on a card
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
