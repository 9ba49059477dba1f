"""Guesses the last thing in the basket of a shop from what lies in it already."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BASKETS, THINGS, ROUND, LENGTH, BATCH = 260_000, 6000, 3200, 24, 64


def sold():
    """What the tills have written down in a year: a dict for each basket."""
    rng = random.Random(45)
    return [
        {"till": rng.randrange(9), "things": [rng.randrange(1, THINGS) for _ in range(8)]}
        for _ in range(BASKETS)
    ]


class Baskets(Dataset):
    """The baskets of one round out of the year's, each filled up with zeros."""

    def __init__(self, baskets):
        self.baskets = baskets

    def __len__(self):
        return ROUND

    def __getitem__(self, index):
        things = self.baskets[index * 81 % BASKETS]["things"]
        row = torch.zeros(LENGTH, dtype=torch.int64)
        row[: len(things) - 1] = torch.tensor(things[:-1])
        return row, things[-1]


class Guess(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.things = nn.Embedding(THINGS, width, padding_idx=0)
        self.body = nn.GRU(width, width, batch_first=True)
        self.last = nn.Linear(width, THINGS)

    def forward(self, rows):
        states, _ = self.body(self.things(rows))
        return self.last(states[:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(45)
    loader = DataLoader(
        Baskets(sold()),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=args.without,
        multiprocessing_context="spawn",
    )
    model = Guess()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for rows, last in loader:
            loss = nn.functional.cross_entropy(model(rows), last)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
