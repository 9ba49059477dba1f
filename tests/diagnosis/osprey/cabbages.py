"""Forecasts the price of cabbages from weekly reports, which are a stream of lines.

Nothing is planted: a recurrent network is the work. One worker parses lines and shuffles them in
a buffer, ahead of it.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

WEEKS, MARKETS = 40, 6


def write_lines(count):
    draw = random.Random(137)
    return [
        ";".join(",".join(f"{draw.random():.2f}" for _ in range(MARKETS)) for _ in range(WEEKS))
        for _ in range(count)
    ]


class Reports(IterableDataset):
    def __init__(self, lines):
        self.lines = lines

    def __len__(self):
        return len(self.lines)

    def parse(self, line):
        return torch.tensor(
            [[float(price) for price in week.split(",")] for week in line.split(";")]
        )

    def __iter__(self):
        buffer = []
        for line in self.lines:
            buffer.append(self.parse(line))
            if len(buffer) == 64:
                place = random.randrange(64)
                buffer[place], buffer[-1] = buffer[-1], buffer[place]
                yield buffer.pop()
        random.shuffle(buffer)
        yield from buffer


class Forecast(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.cells = nn.GRU(MARKETS, size, num_layers=2, batch_first=True)
        self.leave = nn.Linear(size, MARKETS)

    def forward(self, weeks):
        return self.leave(self.cells(weeks)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(137)
    loader = DataLoader(
        Reports(write_lines(1600)), batch_size=32, num_workers=1, persistent_workers=True
    )
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for weeks in loader:
            loss = nn.functional.l1_loss(model(weeks[:, :-1]), weeks[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
