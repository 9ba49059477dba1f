"""Foresees failures of boilers, from logs of their sensors, a file for each boiler.

Planted: the iterable data set does not ask which worker it is in, so that each of two workers reads
all logs, and each window comes twice in an epoch.
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

BOILERS, HOURS, SENSORS, WINDOW, STRIDE, BATCH, STEP = 24, 200, 6, 24, 4, 16, 0.045


def write_logs(folder):
    rng = np.random.default_rng(911)
    for boiler in range(BOILERS):
        values = rng.normal(0, 1, (HOURS, SENSORS)).cumsum(0) * 0.1 + 60
        failing = (values[:, 0] > 61).astype(int)
        with Path(folder, f"boiler-{boiler:02}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["hour", *(f"sensor{s}" for s in range(SENSORS)), "failing"])
            for hour, (row, label) in enumerate(zip(values, failing, strict=True)):
                writer.writerow([hour, *row.round(3), label])


class Logs(IterableDataset):
    def __init__(self, folder, share_out):
        self.files = sorted(Path(folder).glob("*.csv"))
        self.share_out = share_out

    def windows(self, path):
        with path.open(newline="") as file:
            rows = list(csv.reader(file))[1:]
        table = np.array(rows, dtype=np.float32)
        values = (table[:, 1:-1] - 60) / 2
        for start in range(0, len(table) - WINDOW, STRIDE):
            window = values[start : start + WINDOW]
            yield torch.from_numpy(window), table[start + WINDOW, -1]

    def __iter__(self):
        files = self.files
        worker = get_worker_info()
        if self.share_out and worker is not None:
            files = files[worker.id :: worker.num_workers]
        for place in torch.randperm(len(files)).tolist():
            yield from self.windows(files[place])


class Watch(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.GRU(SENSORS, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, windows):
        hidden, _ = self.cells(windows)
        time.sleep(STEP)  # the attention over a year, on a card
        return self.out(hidden[:, -1]).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(911)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_logs(folder)
        loader = DataLoader(
            Logs(folder, share_out=args.without), BATCH, num_workers=2, persistent_workers=True
        )
        model = Watch()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            count = 0
            for windows, failing in loader:
                scores = model(windows)
                loss = nn.functional.binary_cross_entropy_with_logits(scores, failing)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                count += len(windows)
            print(f"epoch {epoch}: loss {loss:.3f} after {count} windows")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
