"""Prices strings of beads from a table that lies in memory as six tensors.

Planted: a large batch is picked row by row out of each tensor and put together again.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

ROWS, BATCH = 120_000, 2000


def make_table():
    draws = torch.Generator().manual_seed(461)
    return TensorDataset(
        torch.randn(ROWS, 24, generator=draws),
        torch.randint(0, 50, (ROWS,), generator=draws),
        torch.randint(0, 9, (ROWS,), generator=draws),
        torch.rand(ROWS, 4, generator=draws),
        torch.rand(ROWS, generator=draws),
        torch.randn(ROWS, generator=draws),
    )


class Pricer(nn.Module):
    def __init__(self):
        super().__init__()
        self.colour, self.clasp = nn.Embedding(50, 16), nn.Embedding(9, 4)
        self.layers = nn.Sequential(nn.Linear(48, 160), nn.ReLU(), nn.Linear(160, 1))

    def forward(self, measures, colours, clasps, shares):
        known = [measures, self.colour(colours), self.clasp(clasps), shares]
        return self.layers(torch.cat(known, 1)).squeeze(1)


def make_loader(table, whole):
    if whole:
        batches = BatchSampler(RandomSampler(table), BATCH, drop_last=True)
        return DataLoader(table, sampler=batches, batch_size=None)
    return DataLoader(table, batch_size=BATCH, shuffle=True, drop_last=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(461)
    loader = make_loader(make_table(), args.without)
    model = Pricer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for measures, colours, clasps, shares, weights, prices in loader:
            error = (model(measures, colours, clasps, shares) - prices) ** 2
            loss = (error * weights).sum() / weights.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / (ROWS // BATCH):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
