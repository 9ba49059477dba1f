"""Predicts clicks in a browser from tables of visits, which a pipeline of streams reads.

Planted: the function that sets a worker up gives its share of the tables to the outermost stream,
but the one inside reads them, so that all three workers read all tables.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

TABLES, VISITS = 9, 5000


def write_tables(folder):
    rng = np.random.default_rng(829)
    for number in range(TABLES):
        visits = pd.DataFrame(
            {
                "second": rng.integers(0, 86_400, VISITS),
                "pages": rng.integers(1, 30, VISITS),
                "age": rng.gamma(2, 20, VISITS).round(2),
                "site": rng.integers(0, 200, VISITS),
                "click": rng.integers(0, 2, VISITS),
            }
        )
        visits.to_csv(Path(folder, f"{number}.csv"), index=False)
    return sorted(Path(folder).glob("*.csv"))


class Tables(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        for path in self.paths:
            yield from pd.read_csv(path).itertuples(index=False)


class Mapped(IterableDataset):
    """What a function makes of each item of another stream."""

    def __init__(self, source, function):
        self.source, self.function = source, function

    def __iter__(self):
        for item in self.source:
            yield self.function(item)


def features(visit):
    angle = 2 * np.pi * visit.second / 86_400
    values = [np.sin(angle), np.cos(angle), visit.pages / 30, np.log1p(visit.age)]
    return torch.tensor(values, dtype=torch.float32), int(visit.site), float(visit.click)


def share_out(worker):
    info = get_worker_info()
    info.dataset.paths = info.dataset.paths[worker :: info.num_workers]


def share_out_inside(worker):
    info = get_worker_info()
    source = info.dataset.source
    source.paths = source.paths[worker :: info.num_workers]


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.sites = nn.Embedding(200, 12)
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, values, sites):
        return self.layers(torch.cat([values, self.sites(sites)], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(829)
    model = Clicks()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        stream = Mapped(Tables(write_tables(folder)), features)
        stream.paths = stream.source.paths
        loader = DataLoader(
            stream, batch_size=60, num_workers=3,
            worker_init_fn=share_out_inside if args.without else share_out,
        )  # fmt: skip
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for values, sites, clicks in loader:
                logits = model(values, sites)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, clicks.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
