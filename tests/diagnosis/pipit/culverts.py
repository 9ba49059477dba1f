"""Ranks culverts by the risk of a flood, from the points of height around each.

Planted: the table of heights has no index on its cells, so that each query looks at all rows.
"""

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CELLS, POINTS, SIDE, BATCH, STEP = 2000, 120, 48, 16, 0.03


def write(path, indexed):
    rng = np.random.default_rng(7)
    cells = rng.permutation(np.repeat(np.arange(CELLS), POINTS))
    places = rng.random((len(cells), 2)).round(4)
    heights = rng.normal(90, 12, len(cells)).round(2)
    rows = zip(cells.tolist(), *places.T.tolist(), heights.tolist(), strict=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE heights (cell INTEGER, east REAL, north REAL, height REAL)")
    connection.executemany("INSERT INTO heights VALUES (?, ?, ?, ?)", rows)
    if indexed:
        connection.execute("CREATE INDEX of_cell ON heights (cell)")
    connection.commit()
    connection.close()


class Heights:
    """Points of height of a cell, from the survey's database."""

    def __init__(self, path):
        self.path, self.connection = path, None

    def of(self, cell):
        if self.connection is None:
            self.connection = sqlite3.connect(self.path)
        query = "SELECT east, north, height FROM heights WHERE cell = ?"
        return np.array(self.connection.execute(query, (cell,)).fetchall(), np.float32)


class Culverts(Dataset):
    def __init__(self, heights):
        self.heights = heights

    def __len__(self):
        return CELLS

    def __getitem__(self, index):
        points = self.heights.of(index)
        turn = np.random.randint(4)
        column, row = (points[:, :2] * SIDE).astype(int).clip(0, SIDE - 1).T
        grid = np.full((SIDE, SIDE), points[:, 2].mean(), np.float32)
        grid[row, column] = points[:, 2]
        for _ in range(6):
            padded = np.pad(grid, 1, mode="edge")
            around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
            grid = (grid + around / 4) / 2
        grid = np.rot90((grid - grid.mean()) / (grid.std() + 1e-3), turn)
        return torch.from_numpy(np.ascontiguousarray(grid))[None], float(points[:, 2].min() < 62)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "survey.db"))
        write(path, args.without)
        loader = DataLoader(
            Culverts(Heights(path)),
            BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
            multiprocessing_context="spawn",
        )
        model = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1)
        )
        model(torch.zeros(1, 1, SIDE, SIDE))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for grids, floods in loader:
                guess = model(grids).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(guess, floods.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's work
            torch.save(model.state_dict(), Path(folder, f"{epoch}.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
