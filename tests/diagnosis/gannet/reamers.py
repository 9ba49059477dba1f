"""Predicts how true a reamer bores, from logs of many machines, which workers share.

Planted: logs are sorted by their length before each of three workers takes its third of them, so
that the last one has nearly all of the rows.
"""

import argparse
import csv
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

MACHINES, FIELDS, LONGEST = 12, 10, 1200


def log(folder):
    """Write a log for each machine; old machines have long ones."""
    rng = np.random.default_rng(499)
    for machine in range(MACHINES):
        rows = rng.random((max(8, int(LONGEST * 0.55**machine)), FIELDS)).round(5)
        with Path(folder, f"{(machine * 5) % MACHINES}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows.tolist())


class Logs(IterableDataset):
    def __init__(self, folder, evenly):
        paths = sorted(Path(folder).glob("*.csv"), key=lambda path: path.stat().st_size)
        self.paths, self.evenly = paths, evenly

    def lines(self):
        """Yield (place, line) for the lines of all logs, or for the logs of this worker."""
        worker = get_worker_info()
        number, of = (worker.id, worker.num_workers) if worker else (0, 1)
        paths = self.paths if self.evenly else np.array_split(np.array(self.paths), of)[number]
        place = 0
        for path in paths:
            with path.open(newline="") as file:
                for line in file:
                    if not self.evenly or place % of == number:
                        yield path.stem, line
                    place += 1

    def correct(self, line):
        """Return a row with the temperature of that hour, which a service knows."""
        time.sleep(0.004)
        row = np.fromstring(line, np.float32, sep=",")
        return row - 0.1 * row.mean()

    def __iter__(self):
        for machine, line in self.lines():
            row = torch.from_numpy(self.correct(line))
            yield row, row[:3].prod(), int(machine)


class Bore(nn.Module):
    def __init__(self, size=256):
        super().__init__()
        self.machines = nn.Embedding(MACHINES, size)
        self.enter, self.leave = nn.Linear(FIELDS, size), nn.Linear(size, 1)

    def forward(self, rows, machines):
        return self.leave(torch.tanh(self.enter(rows) + self.machines(machines))).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(499)
    with tempfile.TemporaryDirectory() as folder:
        log(folder)
        loader = DataLoader(Logs(folder, evenly=args.without), batch_size=10, num_workers=3)
        model = Bore()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            rows_seen = 0
            for rows, true, machines in loader:
                loss = nn.functional.mse_loss(model(rows, machines), true)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                rows_seen += len(rows)
            print(f"epoch {epoch}: {rows_seen} rows, loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
