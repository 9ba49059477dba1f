"""Predicts which vouchers are used from a table, with four small batches to each step.

Nothing is planted: wide layers are the work. Rows are taken from arrays, a whole batch at a time
and without workers, by a sampler that balances; the run ends early if it does not get better.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

VALUES, SHOPS, EACH, WIDTH = 40, 300, 4, 900


class Vouchers(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.values = rng.normal(0, 1, (count, VALUES)).astype(np.float32)
        self.shops = rng.integers(0, SHOPS, count)
        score = self.values[:, :6].sum(1) + rng.normal(0, 1, count)
        self.used = (score > 2.5).astype(np.float32)

    def __len__(self):
        return len(self.used)

    def __getitems__(self, indices):
        arrays = self.values[indices], self.shops[indices], self.used[indices]
        return tuple(torch.from_numpy(array) for array in arrays)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.shops = nn.Embedding(SHOPS, 24)
        self.layers = nn.Sequential(
            nn.Linear(VALUES + 24, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1),
        )  # fmt: skip

    def forward(self, values, shops):
        return self.layers(torch.cat([values, self.shops(shops)], 1)).squeeze(1)


class EarlyStop:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def __call__(self, loss):
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad > self.patience


def loss_of(model, values, shops, used):
    return nn.functional.binary_cross_entropy_with_logits(model(values, shops), used)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(2330)
    known, kept = Vouchers(20_000, 2330), Vouchers(2000, 2331)
    sampler = WeightedRandomSampler((1 + 5 * known.used).tolist(), 25_600)
    loader = DataLoader(known, batch_size=32, sampler=sampler, collate_fn=tuple)
    test_loader = DataLoader(kept, batch_size=500, collate_fn=tuple)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    stop = EarlyStop(patience=args.epochs)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        for number, batch in enumerate(loader, 1):
            loss = loss_of(model, *batch) / EACH
            loss.backward()
            if number % EACH == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            test = float(np.mean([loss_of(model, *batch).item() for batch in test_loader]))
        print(f"epoch {epoch}: loss {EACH * loss:.4f}, test {test:.4f}")
        if stop(test):
            break
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
