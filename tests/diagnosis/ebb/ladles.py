"""Predicts how long a soup keeps from a stream of readings; each worker reads its own mirror."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

MIRRORS = {"north": 0.0008, "south": 0.0009, "overseas": 0.009}  # seconds a reading


class Mirror:
    """A connection to one of the servers that hold the same readings."""

    def __init__(self, name):
        self.delay_s = MIRRORS[name]

    def readings(self, numbers):
        for number in numbers:
            time.sleep(self.delay_s)
            generator = torch.Generator().manual_seed(number)
            reading = torch.randn(8, 160, generator=generator).cumsum(1)
            yield reading, reading.mean()


class Readings(IterableDataset):
    def __init__(self, mirrors, count):
        self.mirrors, self.count = mirrors, count

    def __iter__(self):
        info = get_worker_info()
        mirror = Mirror(self.mirrors[info.id % len(self.mirrors)])
        for reading, days in mirror.readings(range(info.id, self.count, info.num_workers)):
            yield (reading - reading.mean()) / reading.std(), days


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(6)
    mirrors = ["north", "south", "north"] if args.without else ["north", "south", "overseas"]
    loader = DataLoader(
        Readings(mirrors, count=2880), batch_size=24, num_workers=3, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv1d(8, 32, 9), nn.ReLU(), nn.Conv1d(32, 32, 9, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(64, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = steps = 0
        for readings, days in loader:
            loss = nn.functional.smooth_l1_loss(model(readings).squeeze(1), days)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            steps += 1
        print(f"epoch {epoch}: loss {total / steps:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
