"""Predicts when shipyards deliver, from lines of text that a base class parses.

Planted: the base class parses the dates of a line with `strptime` each time the line is drawn.
"""

import argparse
import datetime
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FORM = "%d %B %Y %H:%M"


def write_lines(count):
    draw = random.Random(239)
    start = datetime.datetime(2001, 1, 1)
    for _ in range(count):
        first = start + datetime.timedelta(minutes=draw.randrange(9_000_000))
        dates = [first + datetime.timedelta(hours=draw.randrange(9000)) for _ in range(12)]
        yield ";".join(date.strftime(FORM) for date in dates)


class LinesOfDates(Dataset):
    """Lines that hold dates; a subclass makes features and a target of them."""

    def __init__(self, lines, parsed):
        self.lines = lines
        self.kept = [self.parse(line) for line in lines] if parsed else None

    def parse(self, line):
        return [datetime.datetime.strptime(date, FORM).timestamp() for date in line.split(";")]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        times = self.kept[index] if self.kept else self.parse(self.lines[index])
        return self.features(times)

    def features(self, times):
        raise NotImplementedError


class Deliveries(LinesOfDates):
    def features(self, times):
        first, *others = (moment / 86400 for moment in times)
        rows = torch.tensor([(other - first) / 100 for other in others])
        return rows[:-1], rows[-1]


def train(model, loader, optimizer):
    total = 0.0
    for rows, days in loader:
        loss = nn.functional.l1_loss(model(rows).squeeze(1), days)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(239)
    deliveries = Deliveries(list(write_lines(5000)), parsed=args.without)
    loader = DataLoader(deliveries, batch_size=50, shuffle=True)
    model = nn.Sequential(
        nn.Linear(10, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        print(f"epoch {epoch}: off by {train(model, loader, optimizer):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
