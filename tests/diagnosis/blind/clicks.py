"""Train on a click log that is streamed from CSV files."""

import argparse
import csv
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class ClickLog(IterableDataset):
    def __init__(self, files, sharded):
        super().__init__()
        self.files = files
        self.sharded = sharded

    def rows(self):
        for file in self.files:
            with open(file, newline="") as lines:
                yield from csv.reader(lines)

    def __iter__(self):
        rows = self.rows()
        info = get_worker_info()
        if self.sharded and info:
            rows = islice(rows, info.id, None, info.num_workers)
        for row in rows:
            user, *counts, clicked = row
            features = torch.tensor([float(count) for count in counts])
            yield int(user), features.log1p(), float(clicked)


def write_logs(folder, rows=4800, files=4):
    paths = [Path(folder, f"clicks-{n}.csv") for n in range(files)]
    for n, path in enumerate(paths):
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            for user in range(n, rows, files):
                writer.writerow([user, *((user * k) % 17 for k in range(24)), user % 2])
    return paths


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        log = ClickLog(write_logs(folder), sharded=args.without)
        loader = DataLoader(log, batch_size=32, num_workers=args.workers)
        begin = time.perf_counter()
        clicks = 0.0
        for _user, _features, clicked in loader:
            clicks += clicked.sum().item()
            time.sleep(0.012)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
