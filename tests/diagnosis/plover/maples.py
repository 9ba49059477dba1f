"""Tells maples by their leaves; the list of leaves is read by each process that needs it.

Planted: each epoch starts new workers from a fork server, and the data set reads its whole list
again when it arrives in one.
"""

import argparse
import csv
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LEAVES, USED, MEASURES = 60_000, 960, 12


def write_list(path):
    rng = random.Random(503)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        for number in range(LEAVES):
            writer.writerow([number % 8, *(f"{rng.gauss(0, 1):.4f}" for _ in range(MEASURES))])


class Leaves(Dataset):
    """The leaves of a list, which is not pickled: each process reads it for itself."""

    def __init__(self, path):
        self.path = path
        self.read()

    def read(self):
        self.rows = []
        with open(self.path, newline="") as file:
            for row in csv.reader(file):
                self.rows.append((int(row[0]), [float(measure) for measure in row[1:]]))

    def __getstate__(self):
        return self.path

    def __setstate__(self, path):
        self.path = path
        self.read()

    def __len__(self):
        return USED

    def __getitem__(self, index):
        kind, measures = self.rows[index * 61 % LEAVES]
        return torch.tensor(measures) + 0.1 * torch.randn(MEASURES), kind


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(503)
    model = nn.Sequential(nn.Linear(MEASURES, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "leaves.csv")
        write_list(path)
        loader = DataLoader(
            Leaves(path), batch_size=16, shuffle=True, num_workers=2,
            multiprocessing_context="forkserver", persistent_workers=args.without,
        )  # fmt: skip
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for measures, kinds in loader:
                loss = nn.functional.cross_entropy(model(measures), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
