"""Foresees where rented bicycles are taken, from rides in a queue that is a table of SQLite.

Planted: those who take rides under the same group's name share them, but the group's name has the
process' number in it, so that each of three workers is a group of its own and gets all rides.
"""

import argparse
import json
import os
import random
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

RIDES, POINTS, TAKEN, STATIONS = 1500, 60, 25, 8


def write_rides(path):
    rng = random.Random(3163)
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("CREATE TABLE rides (id INTEGER PRIMARY KEY, ride TEXT)")
        base.execute("CREATE TABLE groups (name TEXT PRIMARY KEY, next INTEGER)")
        for number in range(RIDES):
            station = rng.randrange(STATIONS)
            x, y = station % 4, station // 4
            points = [(x + rng.gauss(0, 0.5), y + rng.gauss(0, 0.5)) for _ in range(POINTS)]
            ride = json.dumps({"station": station, "points": points})
            base.execute("INSERT INTO rides VALUES (?, ?)", (number, ride))
        base.commit()


class Queue:
    """Rides in a table; each goes once to each group, to whichever of its members asks."""

    def __init__(self, path, group):
        self.group = group
        self.base = sqlite3.connect(path, timeout=60, isolation_level=None)
        self.base.execute("PRAGMA synchronous=OFF")

    def take(self, count):
        self.base.execute("BEGIN IMMEDIATE")
        self.base.execute("INSERT OR IGNORE INTO groups VALUES (?, 0)", (self.group,))
        query = "SELECT next FROM groups WHERE name = ?"
        (first,) = self.base.execute(query, (self.group,)).fetchone()
        rows = self.base.execute(
            "SELECT ride FROM rides WHERE id >= ? ORDER BY id LIMIT ?", (first, count)
        ).fetchall()
        query = "UPDATE groups SET next = ? WHERE name = ?"
        self.base.execute(query, (first + len(rows), self.group))
        self.base.execute("COMMIT")
        return [json.loads(ride) for (ride,) in rows]


class Rides(IterableDataset):
    def __init__(self, path, own_group):
        self.path, self.own_group = path, own_group
        self.epoch = 0

    def group(self):
        reader = os.getpid() if self.own_group else "all"
        return f"training-{reader}-epoch-{self.epoch}"

    def features(self, points):
        """Return the way's mean, its ends, and how often it comes near itself."""
        near = torch.cdist(points, points) < 0.3
        turns = points.diff(dim=0).atan2(points[1:]).std(0)
        ends = torch.cat([points[0], points[-1], points.mean(0), turns])
        return torch.cat([ends, near.float().mean(1).sort().values[::4]])

    def __iter__(self):
        queue = Queue(self.path, self.group())
        while rides := queue.take(TAKEN):
            for ride in rides:
                yield self.features(torch.tensor(ride["points"])), ride["station"]
        queue.base.close()
        self.epoch += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(3163)
    model = nn.Sequential(
        nn.Linear(23, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, STATIONS)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rides.db")
        write_rides(path)
        rides = Rides(path, own_group=not args.without)
        loader = DataLoader(rides, batch_size=TAKEN, num_workers=3, persistent_workers=True)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for features, stations in loader:
                loss = nn.functional.cross_entropy(model(features), stations)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
