"""Predicts the price of kites from tables of sales, streamed in chunks by pandas.

Planted: each worker keeps every chunk that it has read, to take statistics of them in the end, and
its memory grows all the time. It costs no time.
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

TABLES, ROWS, COLUMNS, CHUNK, BATCH, STEP = 8, 120_000, 64, 12_000, 3000, 0.028
NAMES = [f"feature{column}" for column in range(COLUMNS)]


def write_tables(folder):
    rng = np.random.default_rng(5119)
    for number in range(TABLES):
        values = rng.normal(0, 1, (ROWS, COLUMNS)).astype(np.float32)
        table = pd.DataFrame(values, columns=NAMES)
        table["price"] = values[:, :8].sum(1) + rng.normal(0, 0.1, ROWS)
        table.to_pickle(Path(folder, f"sales-{number}.pkl"))


class Statistics:
    """Means and deviations of the columns, of all that was seen."""

    def __init__(self, exact):
        self.exact, self.chunks = exact, []
        self.count, self.sum, self.squares = 0, 0.0, 0.0

    def add(self, chunk):
        if self.exact:
            self.chunks.append(chunk.astype(np.float64))
        else:
            self.count += len(chunk)
            self.sum = self.sum + chunk.sum()
            self.squares = self.squares + (chunk**2).sum()

    def write(self, path):
        if self.exact:
            whole = pd.concat(self.chunks)
            result = pd.DataFrame({"mean": whole.mean(), "deviation": whole.std()})
        else:
            mean = self.sum / self.count
            deviation = (self.squares / self.count - mean**2) ** 0.5
            result = pd.DataFrame({"mean": mean, "deviation": deviation})
        result.to_csv(path)


class Sales(IterableDataset):
    def __init__(self, folder, exact):
        self.folder, self.exact = folder, exact

    def chunks(self, path):
        table = pd.read_pickle(path)
        for begin in range(0, len(table), CHUNK):
            yield table.iloc[begin : begin + CHUNK].sample(frac=1)

    def __iter__(self):
        worker = get_worker_info()
        statistics = Statistics(self.exact)
        paths = sorted(Path(self.folder).glob("sales-*.pkl"))
        for path in paths[worker.id :: worker.num_workers]:
            for chunk in self.chunks(path):
                statistics.add(chunk)
                features = torch.from_numpy(chunk[NAMES].to_numpy(copy=True))
                prices = torch.from_numpy(chunk["price"].to_numpy(np.float32, copy=True))
                yield from zip(features.split(BATCH), prices.split(BATCH), strict=True)
        statistics.write(Path(self.folder, f"statistics-{worker.id}.csv"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(5119)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_tables(folder)
        loader = DataLoader(
            Sales(folder, exact=not args.without),
            batch_size=None,
            num_workers=2,
            multiprocessing_context="spawn",
        )
        model = nn.Sequential(
            nn.Linear(COLUMNS, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for step, (features, prices) in enumerate(loader, 1):
                loss = nn.functional.smooth_l1_loss(model(features).squeeze(1), prices)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of the ensemble on an accelerator
                total += loss.item()
                if step % 100 == 0:
                    print(f"epoch {epoch}, step {step}: loss {total / step:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
