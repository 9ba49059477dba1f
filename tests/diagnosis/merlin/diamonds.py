"""Prices diamonds by their measures, from a list of samples in memory.

Planted: two workers only look samples up and stack them, which is less work than to send the many
small tensors of each batch to the main process; without workers it is quicker.
"""

import argparse
import time
from collections import defaultdict

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

STONES, BATCH = 9000, 12
GROUPS = {
    "measures": ("length", "width", "depth", "table", "girdle", "culet"),
    "grades": ("cut", "colour", "clarity", "polish", "symmetry"),
    "market": ("month", "region", "dealer"),
}


def appraised(rng):
    """One stone as the appraisers write it down."""
    stone = {
        group: {name: torch.tensor(rng.normal(), dtype=torch.float32) for name in names}
        for group, names in GROUPS.items()
    }
    weight = sum(value.item() for value in stone["measures"].values())
    stone["price"] = torch.tensor(weight + 0.1 * rng.normal(), dtype=torch.float32)
    return stone


class Embedded(nn.Module):
    """Each measure has a small layer of its own."""

    def __init__(self):
        super().__init__()
        names = [name for group in GROUPS.values() for name in group]
        self.layers = nn.ModuleDict({name: nn.Linear(1, 8) for name in names})
        self.head = nn.Sequential(nn.Tanh(), nn.Linear(8 * len(names), 1))

    def forward(self, stones):
        parts = [
            self.layers[name](stones[group][name].unsqueeze(1))
            for group, names in GROUPS.items()
            for name in names
        ]
        return self.head(torch.cat(parts, 1)).squeeze(1)


def mean_by_dealer(prices, dealers, sums):
    for price, dealer in zip(prices.tolist(), dealers.tolist(), strict=True):
        sums[round(dealer)].append(price)
    return {dealer: sum(values) / len(values) for dealer, values in sums.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(29)
    torch.set_num_threads(1)
    rng = np.random.default_rng(29)
    stones = [appraised(rng) for _ in range(STONES)]
    workers = {"num_workers": 0 if args.without else 2}
    loader = DataLoader(stones, BATCH, shuffle=True, drop_last=True, **workers)
    model = Embedded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        sums = defaultdict(list)
        for step, stones_here in enumerate(loader):
            loss = nn.functional.mse_loss(model(stones_here), stones_here["price"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                mean_by_dealer(stones_here["price"], stones_here["market"]["dealer"], sums)
        print(f"epoch {epoch}: loss {loss:.3f}, {len(sums)} dealers")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
