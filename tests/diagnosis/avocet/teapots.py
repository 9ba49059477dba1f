"""Foresees when a teapot boils over, from lines of JSON that its sensor has written to a file.

Planted: before each epoch, the file is shuffled on disk, for which all of its lines are parsed and
written out again by json, though they could be moved as they are. Two workers stream it then.
"""

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LINES, VALUES, BATCH = 15_000, 32, 100


def write_file(path):
    rng = random.Random(3067)
    with path.open("w") as file:
        for number in range(LINES):
            heat = [rng.gauss(0, 1) for _ in range(VALUES)]
            line = {"pot": number % 50, "heat": heat, "boils": float(sum(heat[:6]) > 0)}
            file.write(json.dumps(line) + "\n")


class Shuffler:
    """Brings the lines of a file into another order for each epoch."""

    def __init__(self, path, parse):
        self.path, self.parse = path, parse
        self.rng = random.Random(3067)

    def records(self):
        with self.path.open() as file:
            for line in file:
                yield json.loads(line) if self.parse else line

    def write(self, records, path):
        with path.open("w") as file:
            for record in records:
                file.write(json.dumps(record) + "\n" if self.parse else record)

    def shuffle(self):
        records = list(self.records())
        self.rng.shuffle(records)
        new = self.path.with_suffix(".new")
        self.write(records, new)
        os.replace(new, self.path)


class Lines(IterableDataset):
    """The lines of a file from top to bottom; of two workers each takes every other batch."""

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return LINES

    def __iter__(self):
        worker = get_worker_info()
        with self.path.open() as file:
            for number, line in enumerate(file):
                if worker is None or number // BATCH % worker.num_workers == worker.id:
                    record = json.loads(line)
                    yield torch.tensor(record["heat"]), record["boils"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(3067)
    model = nn.Sequential(
        nn.Linear(VALUES, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "teapots.jsonl")
        write_file(path)
        shuffler = Shuffler(path, parse=not args.without)
        loader = DataLoader(Lines(path), batch_size=BATCH, num_workers=2, persistent_workers=True)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            shuffler.shuffle()
            for heat, boils in loader:
                logits = model(heat).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, boils.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
