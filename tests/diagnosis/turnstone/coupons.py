"""Predicts which coupons are clicked, from a log, with a sampler that a job can continue.

Planted: the sampler removes each batch from the set of what remains, to save that in a checkpoint,
and goes over the whole log each time.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

VISITS, COUPONS = 60_000, 500


class ClickLog(Dataset):
    """Visits: an hour, a coupon, a price, and whether there was a click."""

    def __init__(self):
        rng = np.random.default_rng(1019)
        self.coupon = torch.from_numpy(rng.integers(0, COUPONS, VISITS))
        self.values = torch.from_numpy(rng.random((VISITS, 6), dtype=np.float32))
        chance = 0.1 + 0.5 * self.values[:, 0] * (self.coupon % 7 < 2)
        self.click = torch.from_numpy(rng.random(VISITS, dtype=np.float32)) < chance

    def __len__(self):
        return VISITS

    def __getitems__(self, numbers):
        chosen = torch.as_tensor(numbers)
        return self.coupon[chosen], self.values[chosen], self.click[chosen].float()


class BatchesBase(Sampler):
    """Batches of numbers without repetition; `state` tells a later job where to continue."""

    def __init__(self, count, batch, seed):
        self.count, self.batch, self.seed = count, batch, seed

    def __len__(self):
        return self.count // self.batch

    def state(self):
        raise NotImplementedError


class RemainingBatches(BatchesBase):
    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        self.remaining = np.arange(self.count)
        for _ in range(len(self)):
            taken = rng.choice(self.remaining, self.batch, replace=False)
            self.remaining = np.setdiff1d(self.remaining, taken)
            yield taken.tolist()

    def state(self):
        return {"remaining": len(self.remaining)}


class NumberedBatches(BatchesBase):
    def __iter__(self):
        order = np.random.default_rng(self.seed).permutation(self.count)
        self.done = 0
        for begin in range(0, len(self) * self.batch, self.batch):
            self.done += 1
            yield order[begin : begin + self.batch].tolist()

    def state(self):
        return {"done": self.done}


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.coupons = nn.Embedding(COUPONS, 10)
        self.layers = nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 1))

    def forward(self, coupon, values):
        return self.layers(torch.cat([self.coupons(coupon), values], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1019)
    kind = NumberedBatches if args.without else RemainingBatches
    sampler = kind(VISITS, 250, seed=3)
    loader = DataLoader(
        ClickLog(), batch_sampler=sampler, collate_fn=tuple, num_workers=1,
        persistent_workers=True,
    )  # fmt: skip
    model = Clicks()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for coupon, values, click in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(coupon, values), click)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}, sampler at {sampler.state()}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
