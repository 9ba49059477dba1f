"""Matches calls of quokkas with the places they were heard at.

Planted: the function that sets a worker up reads the table of all places, line by line, and as the
workers are new in each epoch, each of them reads it again in each.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

PLACES, CALLS, VALUES = 150_000, 480, 96


def write_places(path):
    rng = np.random.default_rng(4139)
    spots = rng.uniform(-90, 90, (PLACES, 2))
    lines = (f"place-{i:06},{x:.6f},{y:.6f}\n" for i, (x, y) in enumerate(spots))
    path.write_text("".join(lines))


class Quokkas(Dataset):
    def __init__(self, path):
        rng = np.random.default_rng(4153)
        self.path, self.places = path, None
        self.heard = [f"place-{number:06}" for number in rng.integers(0, PLACES, CALLS)]
        self.calls = rng.normal(0, 1, (CALLS, VALUES)).astype(np.float32)

    def open(self):
        self.places = {}
        with open(self.path) as lines:
            for line in lines:
                name, x, y = line.split(",")
                self.places[name] = (float(x) / 90, float(y) / 90)

    def __len__(self):
        return CALLS

    def __getitem__(self, index):
        place = torch.tensor(self.places[self.heard[index]])
        return torch.from_numpy(self.calls[index]), place


def prepare(_):
    data = get_worker_info().dataset
    if data.places is None:
        data.open()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(4139)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(VALUES, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "places.csv")
        write_places(path)
        loader = DataLoader(
            Quokkas(path),
            batch_size=16,
            shuffle=True,
            num_workers=2,
            worker_init_fn=prepare,
            persistent_workers=args.without,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for calls, places in loader:
                loss = nn.functional.mse_loss(model(calls), places)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(0.005)
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
