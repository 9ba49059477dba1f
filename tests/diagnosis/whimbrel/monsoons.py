"""Forecasts monsoons from fields of the air, one every six hours, on an accelerator (a pause here).

Planted: a worker takes the fields whose hour can be divided among the workers by its number, and
as each hour is a multiple of six, the first of three workers gets them all.
"""

import argparse
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHAPE, EVERY, STEP = (12, 120, 180), 6, 0.04


def write_fields(folder, count):
    rng = np.random.default_rng(2260)
    field = rng.normal(0, 1, SHAPE)
    for number in range(count):
        field = 0.95 * field + 0.2 * rng.normal(0, 1, SHAPE)
        content = zlib.compress(field.astype(np.float16).tobytes(), 1)
        (folder / f"hour{number * EVERY:06d}.z").write_bytes(content)


class Fields(IterableDataset):
    """Fields of a folder, unpacked, made smooth, and without their mean."""

    def __init__(self, folder, by_place):
        self.paths = sorted(folder.iterdir())
        self.by_place = by_place

    def own(self):
        info = get_worker_info()
        if self.by_place:
            return self.paths[info.id :: info.num_workers]
        return [path for path in self.paths if self.hour(path) % info.num_workers == info.id]

    def hour(self, path):
        return int(path.stem.removeprefix("hour"))

    def read(self, path):
        field = np.frombuffer(zlib.decompress(path.read_bytes()), np.float16)
        return field.reshape(SHAPE).astype(np.float32)

    def smooth(self, field):
        for axis in (1, 2):
            for _ in range(5):
                field = (np.roll(field, 1, axis) + 2 * field + np.roll(field, -1, axis)) / 4
        return field

    def __iter__(self):
        for path in self.own():
            field = self.smooth(self.read(path))
            rain = field[0].clip(0).mean(1)
            yield torch.from_numpy(field - field.mean((1, 2), keepdims=True)), rain


class Accelerator:
    """Takes some time for each batch, and hardly a core."""

    def __init__(self):
        self.model = nn.Linear(SHAPE[0], 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def train(self, fields, rain):
        time.sleep(STEP)
        guesses = self.model(fields.mean(3).transpose(1, 2)).squeeze(2)
        loss = nn.functional.mse_loss(guesses, rain)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(2260)
    with tempfile.TemporaryDirectory() as folder:
        write_fields(Path(folder), 160)
        loader = DataLoader(
            Fields(Path(folder), args.without), batch_size=10, num_workers=3,
            persistent_workers=True,
        )  # fmt: skip
        accelerator = Accelerator()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            losses = [accelerator.train(*batch) for batch in loader]
            print(f"epoch {epoch}: loss {np.mean(losses):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
