"""Learns from a stream of readings in sheds, of which every fortieth is slow to come.

Nothing is planted: wide layers are the work. One worker is far enough ahead to hide the slow
readings, which wait for a station.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FIELDS, SORTS = 64, 8


class Readings(IterableDataset):
    def __init__(self, count):
        self.count = count
        self.spread = np.linspace(0.5, 1.5, FIELDS, dtype=np.float32)

    def ask_station(self):
        time.sleep(0.05)

    def __iter__(self):
        worker = get_worker_info()
        rng = np.random.default_rng(worker.seed if worker else 617)
        for number in range(self.count):
            reading = rng.standard_normal(FIELDS, dtype=np.float32) * self.spread
            if number % 40 == 5:
                self.ask_station()
            yield torch.from_numpy(reading), number % SORTS


class Sorts(nn.Module):
    def __init__(self, size=1100, blocks=4):
        super().__init__()
        self.enter = nn.Linear(FIELDS, size)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(size), nn.Linear(size, size), nn.GELU())
            for _ in range(blocks)
        )
        self.leave = nn.Linear(size, SORTS)

    def forward(self, readings):
        hidden = self.enter(readings)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.leave(hidden)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(617)
    loader = DataLoader(
        Readings(2400), batch_size=40, num_workers=1, prefetch_factor=4, persistent_workers=True
    )
    model = Sorts()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for readings, sorts in loader:
            scores = model(readings)
            loss = nn.functional.cross_entropy(scores, sorts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == sorts).sum().item()
        print(f"epoch {epoch}: {right} right, loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
