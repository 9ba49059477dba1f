"""Predicts the danger of avalanches from tables of weather stations, which have gaps.

Planted: of the five steps of the transform, the one that fills gaps compares each row with 12,000
rows of earlier years to find its neighbours.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torchvision.transforms import v2

ROWS, EARLIER, COLUMNS, LEVELS, BATCH = 1200, 12_000, 32, 4, 24


def write_tables(folder):
    rng = np.random.default_rng(5171)
    for part in range(3):
        values = rng.normal(0, 1, (ROWS // 3, COLUMNS))
        level = np.digitize(values[:, :4].sum(1), [-1.5, 0, 1.5])
        values[rng.random(values.shape) < 0.1] = np.nan
        table = pd.DataFrame(values, columns=[f"c{column}" for column in range(COLUMNS)])
        table.insert(0, "level", level)
        table.to_csv(Path(folder, f"winter-{part}.csv"), index=False)
    np.save(Path(folder, "earlier.npy"), rng.normal(0, 1, (EARLIER, COLUMNS)))


class Clip:
    def __call__(self, row):
        return np.clip(row, -4, 4)


class FillByNeighbours:
    def __init__(self, earlier, neighbours=5):
        self.earlier, self.neighbours = earlier, neighbours

    def __call__(self, row):
        gaps = np.isnan(row)
        if not gaps.any():
            return row
        distances = ((self.earlier[:, ~gaps] - row[~gaps]) ** 2).sum(1)
        nearest = np.argsort(distances)[: self.neighbours]
        return np.where(gaps, self.earlier[nearest].mean(0), row)


class FillByMean:
    def __init__(self, earlier):
        self.mean = earlier.mean(0)

    def __call__(self, row):
        return np.where(np.isnan(row), self.mean, row)


class ToTensor:
    def __call__(self, row):
        return torch.tensor(row, dtype=torch.float32)


class Disturb:
    def __call__(self, row):
        return row + 0.05 * torch.randn_like(row)


class WithSquares:
    def __call__(self, row):
        return torch.cat([row, row**2])


class Winters(IterableDataset):
    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __iter__(self):
        for path in self.paths:
            table = pd.read_csv(path).sample(frac=1, random_state=5171)
            levels = table.pop("level").to_numpy()
            for row, level in zip(table.to_numpy(), levels, strict=True):
                yield self.transform(row), int(level)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = count = 0
    for rows, levels in loader:
        right += (model(rows).argmax(1) == levels).sum().item()
        count += len(levels)
    model.train()
    return right / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5171)
    with tempfile.TemporaryDirectory() as folder:
        write_tables(folder)
        earlier = np.load(Path(folder, "earlier.npy"))
        fill = FillByMean(earlier) if args.without else FillByNeighbours(earlier)
        paths = sorted(Path(folder).glob("winter-*.csv"))
        prepare = [Clip(), fill, ToTensor()]
        training = Winters(paths[1:], v2.Compose([*prepare, Disturb(), WithSquares()]))
        validation = Winters(paths[:1], v2.Compose([*prepare, WithSquares()]))
        loader, held_out = DataLoader(training, BATCH), DataLoader(validation, BATCH)
        model = nn.Sequential(
            nn.Linear(2 * COLUMNS, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, LEVELS)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for rows, levels in loader:
                loss = nn.functional.cross_entropy(model(rows), levels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}, right {validate(model, held_out):.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
