"""Predicts the harvest of radishes from rows of soil, drawn so that all fields come equally often.

Planted: at the begin of each epoch, the sampler makes its index of fields anew, out of the headers
of all rows, although they never change. No worker has anything to do until it is done.
"""

import argparse
import os
import random
import struct
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

ROWS, FIELDS, VALUES, DRAWN = 400_000, 60, 12, 1600
ROW = struct.Struct(f"<H{VALUES}f")


def write_rows(path):
    rng = np.random.default_rng(4157)
    kind = np.dtype([("field", "<u2"), ("values", "<f4", VALUES)])
    rows = np.zeros(ROWS, kind)
    rows["field"] = rng.integers(0, FIELDS, ROWS)
    rows["values"] = rng.normal(0, 1, (ROWS, VALUES)) + rows["field"][:, None] / FIELDS
    path.write_bytes(rows.tobytes())


class Radishes(Dataset):
    def __init__(self, path):
        self.path, self.file = path, None

    def __len__(self):
        return self.path.stat().st_size // ROW.size

    def fields(self):
        """The rows of each field."""
        fields = defaultdict(list)
        data = memoryview(self.path.read_bytes())
        for row in range(len(self)):
            field, *_ = ROW.unpack_from(data, row * ROW.size)
            fields[field].append(row)
        return fields

    def __getitem__(self, row):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
        _, *values = ROW.unpack(os.pread(self.file, ROW.size, row * ROW.size))
        values = torch.tensor(values)
        return values, values.mean().exp()


class Equally(Sampler):
    def __init__(self, data, keep):
        self.data, self.keep, self.kept = data, keep, None

    def __len__(self):
        return DRAWN

    def __iter__(self):
        fields = self.kept or self.data.fields()
        if self.keep:
            self.kept = fields
        names = sorted(fields)
        for number in range(DRAWN):
            yield random.choice(fields[names[number % len(names)]])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(4157)
    random.seed(4157)
    model = nn.Sequential(nn.Linear(VALUES, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "soil.bin")
        write_rows(path)
        data = Radishes(path)
        loader = DataLoader(
            data,
            batch_size=32,
            sampler=Equally(data, keep=args.without),
            num_workers=2,
            persistent_workers=True,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for soil, harvest in loader:
                loss = nn.functional.mse_loss(model(soil).squeeze(1), harvest)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(0.004)
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
