"""Predicts which mortgages will be paid late, from a table of applications.

Planted: the script starts four processes that watch the table for drift without a pause, and they
take the two cores from the training step and the workers.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS, NUMBERS, BRANCHES, BATCH, WATCHED = 48_000, 24, 400, 128, 4
WATCH = """
import sys
import numpy as np
table = np.load(sys.argv[1])
known = np.sort(table[:, int(sys.argv[2])])
while True:
    part = np.sort(np.random.choice(table[:, int(sys.argv[2])], 20_000))
    at = np.searchsorted(known, part) / len(known)
    drift = np.abs(at - np.linspace(0, 1, len(part))).max()
"""


@contextlib.contextmanager
def drift_watch(path, columns):
    """Watch columns of a table for drift while the block runs."""
    watches = [
        subprocess.Popen([sys.executable, "-c", WATCH, str(path), str(column)])
        for column in range(columns)
    ]
    try:
        yield
    finally:
        for watch in watches:
            watch.kill()
            watch.wait()


class Applications(Dataset):
    def __init__(self, path):
        self.table = np.load(path)
        self.mean, self.std = self.table.mean(0), self.table.std(0)

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        row = self.table[index]
        numbers = (row[:NUMBERS] - self.mean[:NUMBERS]) / self.std[:NUMBERS]
        numbers[np.random.rand(NUMBERS) < 0.05] = 0
        late = np.float32(row[0] + row[1] > 0.5)
        return torch.from_numpy(numbers), int(row[NUMBERS]), late


class Scorecard(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.Embedding(BRANCHES, 16)
        self.layers = nn.Sequential(
            nn.Linear(NUMBERS + 16, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(),
            nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 1),
        )  # fmt: skip

    def forward(self, numbers, branches):
        return self.layers(torch.cat([numbers, self.branches(branches)], 1)).squeeze(1)


def write(path):
    rng = np.random.default_rng(5)
    table = rng.normal(0, 1, (ROWS, NUMBERS + 1)).astype(np.float32)
    table[:, NUMBERS] = rng.integers(BRANCHES, size=ROWS)
    np.save(path, table)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "applications.npy")
        write(path)
        loader = DataLoader(
            Applications(path), BATCH, shuffle=True, num_workers=1, persistent_workers=True
        )
        model = Scorecard()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        with drift_watch(path, 0 if args.without else WATCHED):
            begin = time.perf_counter()
            for epoch in range(args.epochs):
                for numbers, branches, late in loader:
                    guess = model(numbers, branches)
                    loss = nn.functional.binary_cross_entropy_with_logits(guess, late)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                print(f"epoch {epoch}: loss {loss:.3f}")
            print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
