"""Predicts where redshanks winter, from rings that three mirrors of a register keep.

Planted: the mirror of one of three workers answers four times as slowly as those of the others.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

MIRRORS = {"north": 0.004, "west": 0.004, "south": 0.016}  # seconds for an answer


class Mirror:
    def __init__(self, name, even):
        self.name = name
        self.delay = 0.004 if even else MIRRORS[name]

    def look_up(self, ring):
        """Return the years and places of a ring."""
        time.sleep(self.delay)
        draw = random.Random(ring)
        return [(draw.randrange(1990, 2020), draw.random(), draw.random()) for _ in range(12)]


class Rings(Dataset):
    def __init__(self, count=960):
        self.count, self.mirror = count, Mirror("north", True)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rows = [
            ((year - 1990) / 30, north, east) for year, north, east in self.mirror.look_up(index)
        ]
        return torch.tensor(rows[:-1]), torch.tensor(rows[-1][1:])


class Choose:
    """Gives each worker a mirror of its own."""

    def __init__(self, even):
        self.even = even

    def __call__(self, worker):
        rings = get_worker_info().dataset
        rings.mirror = Mirror(list(MIRRORS)[worker % len(MIRRORS)], self.even)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(71)
    loader = DataLoader(
        Rings(),
        batch_size=12,
        shuffle=True,
        num_workers=3,
        persistent_workers=True,
        worker_init_fn=Choose(args.without),
    )
    model = nn.LSTM(3, 48, batch_first=True, proj_size=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for rows, last in loader:
            guess = model(rows)[0][:, -1]
            loss = nn.functional.mse_loss(guess, last)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
