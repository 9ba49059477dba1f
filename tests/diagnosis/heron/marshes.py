"""Learns levels of water in a marsh, with a light loop over tensors in memory.

Nothing is planted: whole batches are cut from tensors by a batch sampler, which takes little beside
a step of many small operations. Each epoch ends with a line in a table.
"""

import argparse
import csv
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

GAUGES, HOURS, BATCH = 24, 48, 64


class Levels(Dataset):
    """Levels of all gauges; an index is a list of the hours of a batch."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(193)
        self.levels = torch.randn(count + HOURS, GAUGES, generator=generator).cumsum(0) / 10
        self.before = torch.arange(-HOURS, 0)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, hours):
        hours = torch.tensor(hours) + HOURS
        return self.levels[hours[:, None] + self.before], self.levels[hours]


class Marsh(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTMCell(GAUGES, size), nn.LSTMCell(size, size)])
        self.leave = nn.Linear(size, GAUGES)
        self.size = size

    def forward(self, levels):
        states = [
            (levels.new_zeros(len(levels), self.size), levels.new_zeros(len(levels), self.size))
            for _ in self.cells
        ]
        for now in levels[:, ::2].unbind(1):
            for place, cell in enumerate(self.cells):
                states[place] = cell(now, states[place])
                now = states[place][0]
        return levels[:, -1] + self.leave(now)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(193)
    levels = Levels(9600)
    sampler = BatchSampler(RandomSampler(levels), BATCH, drop_last=True)
    loader = DataLoader(levels, sampler=sampler, batch_size=None)
    model = Marsh()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with (
        tempfile.TemporaryDirectory() as folder,
        open(Path(folder, "levels.csv"), "w", newline="") as file,
    ):
        table = csv.writer(file)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for before, after in loader:
                loss = nn.functional.mse_loss(model(before), after)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
            table.writerow([epoch, float(total) / len(loader)])
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
