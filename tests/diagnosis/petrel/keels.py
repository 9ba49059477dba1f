"""Reads measurements of keels from five files on a slow share, with four workers.

Planted: the files are dealt out in blocks of two, as in a tutorial, so the last worker has none.
"""

import argparse
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FILES, ROWS, SIZE = 5, 300, 40
LATENCY = 0.009  # of one read from the share


class Keels(IterableDataset):
    def __init__(self, paths, evenly):
        self.paths, self.evenly = paths, evenly

    def part(self):
        """Yield the path and the rows that the present worker has to read."""
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        if self.evenly:
            for path in self.paths:
                yield path, range(number, ROWS, workers)
            return
        size = math.ceil(len(self.paths) / workers)
        for path in self.paths[number * size : (number + 1) * size]:
            yield path, range(ROWS)

    def __iter__(self):
        for path, rows in self.part():
            with open(path, "rb") as file:
                for row in rows:
                    time.sleep(LATENCY)
                    file.seek(row * SIZE * 4)
                    keel = np.frombuffer(file.read(SIZE * 4), np.float32)
                    yield torch.from_numpy(keel[1:].copy()), keel[0]


def write_files(folder):
    rng = np.random.default_rng(277)
    for number in range(FILES):
        path = Path(folder, f"keels-{number}.f32")
        rng.standard_normal((ROWS, SIZE)).astype(np.float32).tofile(path)
        yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(277)
    with tempfile.TemporaryDirectory() as folder:
        keels = Keels(list(write_files(folder)), evenly=args.without)
        loader = DataLoader(keels, batch_size=10, num_workers=4, persistent_workers=True)
        model = nn.Sequential(nn.Linear(SIZE - 1, 512), nn.Tanh(), nn.Linear(512, 1))
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            count = 0
            for keels_read, drag in loader:
                loss = nn.functional.mse_loss(model(keels_read).squeeze(1), drag)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                count += len(drag)
            print(f"epoch {epoch}: {count} keels, loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
