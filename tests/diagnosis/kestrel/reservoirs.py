"""Maps the water of reservoirs in tiles of a satellite, with the distance to the shore as a band.

Planted: the transform that measures the distance goes over all pixels twice in plain Python.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TILES, SIDE, BATCH, STEP = 576, 72, 24, 0.06
FAR = 2 * SIDE
STEPS = np.abs(np.arange(SIDE)[:, None] - np.arange(SIDE)).astype(np.float32)


def turn(bands, rng):
    return np.ascontiguousarray(np.rot90(bands, rng.integers(4), (1, 2)))


def haze(bands, rng):
    return bands * rng.uniform(0.8, 1.0) + rng.uniform(0, 0.2)


class ShoreDistance:
    """Appends a band: the steps from each pixel to the nearest water."""

    def __call__(self, bands):
        water = bands[0] < 0.3
        distance = [
            [0 if water[row, column] else FAR for column in range(SIDE)] for row in range(SIDE)
        ]
        for row in range(SIDE):
            for column in range(SIDE):
                if row > 0:
                    distance[row][column] = min(
                        distance[row][column], distance[row - 1][column] + 1
                    )
                if column > 0:
                    distance[row][column] = min(
                        distance[row][column], distance[row][column - 1] + 1
                    )
        for row in range(SIDE - 1, -1, -1):
            for column in range(SIDE - 1, -1, -1):
                if row < SIDE - 1:
                    distance[row][column] = min(
                        distance[row][column], distance[row + 1][column] + 1
                    )
                if column < SIDE - 1:
                    distance[row][column] = min(
                        distance[row][column], distance[row][column + 1] + 1
                    )
        return np.concatenate([bands, np.array(distance, np.float32)[None] / FAR])


class ShoreDistanceByRows:
    """The same, first along rows and then along columns."""

    def nearest(self, distance):
        return (STEPS[None] + distance[:, None, :]).min(2)

    def __call__(self, bands):
        distance = np.where(bands[0] < 0.3, np.float32(0), np.float32(FAR))
        distance = self.nearest(self.nearest(distance).T).T
        return np.concatenate([bands, distance[None] / FAR])


class Tiles(Dataset):
    def __init__(self, shore):
        rng = np.random.default_rng(1201)
        small = rng.random((32, 3, SIDE // 8, SIDE // 8), dtype=np.float32)
        self.tiles = small.repeat(8, 2).repeat(8, 3)
        self.shore = shore

    def __len__(self):
        return TILES

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        bands = self.tiles[index % len(self.tiles)]
        mask = torch.from_numpy((bands[0] < 0.3).astype(np.float32))
        bands = self.shore(haze(turn(bands, rng), rng)).astype(np.float32)
        return torch.from_numpy(bands), mask.mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1201)
    torch.set_num_threads(1)
    shore = ShoreDistanceByRows() if args.without else ShoreDistance()
    loader = DataLoader(Tiles(shore), BATCH, shuffle=True, num_workers=2, persistent_workers=True)
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
