"""Picks the arrival of waves in records of seismographs, streamed from a store of objects.

Planted: the shards are read through a buffer of 8 KB, so that a shard takes some fifty ranged
requests, one after the other, each of which waits for the way to the store and back.
"""

import argparse
import io
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, RECORDS, POINTS, CHANNELS, BATCH = 8, 64, 1024, 3, 16
LATENCY, RATE, STEP = 0.01, 60e6, 0.03
RECORD = np.dtype([("arrival", "<f4"), ("values", "<i2", (CHANNELS, POINTS))])


class Store:
    """Objects of a store far away, of which ranges may be asked for."""

    def __init__(self):
        rng = np.random.default_rng(5051)
        self.objects = {}
        for number in range(SHARDS):
            records = np.zeros(RECORDS, RECORD)
            records["arrival"] = rng.uniform(0.2, 0.8, RECORDS)
            noise = rng.normal(0, 200, (RECORDS, CHANNELS, POINTS))
            after = np.arange(POINTS) / POINTS > records["arrival"][:, None, None]
            records["values"] = noise * (1 + 4 * after)
            self.objects[f"net/{number:03}.rec"] = records.tobytes()

    def names(self):
        return sorted(self.objects)

    def get_range(self, name, first, size):
        content = self.objects[name][first : first + size]
        time.sleep(LATENCY + len(content) / RATE)
        return content


class Stream(io.RawIOBase):
    def __init__(self, store, name):
        self.store, self.name, self.place = store, name, 0

    def readable(self):
        return True

    def readinto(self, into):
        content = self.store.get_range(self.name, self.place, len(into))
        into[: len(content)] = content
        self.place += len(content)
        return len(content)


class Records(IterableDataset):
    def __init__(self, store, buffer):
        self.store, self.buffer = store, buffer
        self.epoch = 0

    def shards(self):
        names = self.store.names()
        order = np.random.default_rng(self.epoch).permutation(len(names))
        self.epoch += 1
        worker = get_worker_info()
        return [names[place] for place in order[worker.id :: worker.num_workers]]

    def __iter__(self):
        for name in self.shards():
            with io.BufferedReader(Stream(self.store, name), self.buffer) as file:
                while content := file.read(RECORD.itemsize):
                    record = np.frombuffer(content, RECORD)[0]
                    values = record["values"].astype(np.float32)
                    values -= values.mean(1, keepdims=True)
                    values /= values.std() + 1e-3
                    yield torch.from_numpy(values), np.float32(record["arrival"])


def make_picker():
    return nn.Sequential(
        nn.Conv1d(CHANNELS, 8, 9, stride=4), nn.ReLU(), nn.Conv1d(8, 8, 9, stride=4), nn.ReLU(),
        nn.AdaptiveAvgPool1d(12), nn.Flatten(), nn.Linear(96, 1), nn.Sigmoid(), nn.Flatten(0),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(5051)
    torch.set_num_threads(1)
    buffer = 1024 * 1024 if args.without else io.DEFAULT_BUFFER_SIZE
    data = Records(Store(), buffer)
    loader = DataLoader(data, BATCH, num_workers=2, persistent_workers=True)
    picker = make_picker()
    optimizer = torch.optim.Adam(picker.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        errors = []
        for values, arrivals in loader:
            loss = nn.functional.smooth_l1_loss(picker(values), arrivals)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the larger part of the model, on its device
            errors.append(loss.item())
        print(f"epoch {epoch}: mean loss {np.mean(errors):.4f} of {len(errors)} batches")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
