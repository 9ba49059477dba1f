"""Soil profiles out of shards, each of which is copied from afar before its records are read."""

import argparse
import io
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

COPY_S = 0.4


def copy_shard(number, records=80):
    """The content of a shard, which comes from a store in another country."""
    rng = np.random.default_rng(number)
    buffer = io.BytesIO()
    np.save(buffer, rng.normal(size=(records, 24, 256)).astype(np.float32))
    time.sleep(COPY_S)
    return buffer


class Shards(IterableDataset):
    """The records of all shards, shared among the workers.

    Subclasses `prepare` a record.
    """

    def __init__(self, count):
        self.count = count

    def mine(self):
        worker = get_worker_info()
        return range(worker.id, self.count, worker.num_workers) if worker else range(self.count)

    def __iter__(self):
        for number in self.mine():
            buffer = copy_shard(number)
            buffer.seek(0)
            yield from map(self.prepare, np.load(buffer))


class Profiles(Shards):
    def prepare(self, record):
        profile = torch.from_numpy(record)
        profile = (profile - profile.mean(1, keepdim=True)) / profile.std(1, keepdim=True)
        return profile.roll(int(torch.randint(256, ())), 1), profile[:, :16].mean(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--prefetch", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(36)
    ahead = 24 if args.without else args.prefetch
    loader = DataLoader(Profiles(20), batch_size=8, num_workers=2, prefetch_factor=ahead)
    model = nn.Sequential(
        nn.Conv1d(24, 112, 9, padding=4),
        nn.GELU(),
        nn.Conv1d(112, 112, 9, padding=4),
        nn.GELU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(112, 24),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    total = 0.0
    begin = time.perf_counter()
    for step, (profiles, means) in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(profiles), means)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 50 == 0:
            print(f"step {step}: loss {total / 50:.4f}")
            total = 0.0
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
