"""Predicts the prices of auctions from a table of six million bids, a part of it in each epoch.

Planted: at the beginning of each epoch the sampler draws rows by weight and without replacement
from the whole table, in the main process, before any batch is asked for.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

BIDS, EACH, BATCH, STEP = 6_000_000, 4096, 256, 0.02


class Bids(Dataset):
    def __init__(self, rng):
        self.table = rng.random((BIDS, 6), dtype=np.float32)
        self.ages = rng.exponential(200, BIDS).astype(np.float32)

    def __len__(self):
        return len(self.table)

    def __getitems__(self, rows):
        values = torch.from_numpy(self.table[rows])
        ages = torch.from_numpy(self.ages[rows])
        features = torch.cat([values[:, :5], torch.log1p(ages)[:, None]], 1)
        return [(features, values[:, 5:])]


class Recent(Sampler):
    """Draws rows, recent ones more often than old ones."""

    def __init__(self, ages, quick):
        self.chances = np.exp(-ages / 300).astype(np.float64)
        self.chances /= self.chances.sum()
        self.sums = self.chances.cumsum()
        self.rng = np.random.default_rng(5113)
        self.quick = quick

    def __len__(self):
        return EACH

    def rows(self):
        if self.quick:
            drawn = np.searchsorted(self.sums, self.rng.random(2 * EACH) * self.sums[-1])
            return self.rng.permutation(np.unique(drawn))[:EACH]
        return self.rng.choice(len(self.chances), EACH, replace=False, p=self.chances)

    def __iter__(self):
        return iter(self.rows().tolist())


def first(batches):
    return batches[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(5113)
    torch.set_num_threads(1)
    bids = Bids(np.random.default_rng(5113))
    loader = DataLoader(
        bids,
        BATCH,
        sampler=Recent(bids.ages, quick=args.without),
        num_workers=1,
        persistent_workers=True,
        collate_fn=first,
    )
    model = nn.Sequential(nn.Linear(6, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = []
        for features, prices in loader:
            loss = nn.functional.huber_loss(model(features), prices)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the boosted part of the model, on its device
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {np.mean(losses):.4f} in {len(losses)} steps")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
