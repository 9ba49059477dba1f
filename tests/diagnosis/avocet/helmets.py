"""Tells falls from knocks by what sensors in helmets felt, with a contract for all data.

Planted: the collate function holds each sample against the team's contract, which looks at every
single value in Python, in lists within lists, before it makes tensors of them.
"""

import argparse
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AXES, LENGTH, COUNT, BATCH = 6, 320, 720, 24


class ContractError(ValueError):
    pass


@dataclass(frozen=True)
class Number:
    low: float
    high: float

    def check(self, value, where):
        if not isinstance(value, float) or not math.isfinite(value):
            raise ContractError(f"{where}: {value!r} is no finite number")
        if not self.low <= value <= self.high:
            raise ContractError(f"{where}: {value} is out of range")


@dataclass(frozen=True)
class ListOf:
    size: int
    item: object

    def check(self, values, where):
        if len(values) != self.size:
            raise ContractError(f"{where}: {len(values)} items, not {self.size}")
        for place, value in enumerate(values):
            self.item.check(value, (where, place))


CONTRACT = ListOf(AXES, ListOf(LENGTH, Number(-200.0, 200.0)))


class Collated:
    """Makes a batch of samples that keep to the contract."""

    def __init__(self, contract=None):
        self.contract = contract

    def __call__(self, samples):
        motions, falls = zip(*samples, strict=True)
        if self.contract is not None:
            for place, motion in enumerate(motions):
                self.contract.check(motion.tolist(), place)
        return torch.from_numpy(np.stack(motions)), torch.tensor(falls)


class Motions(Dataset):
    def __init__(self):
        rng = np.random.default_rng(3061)
        self.falls = rng.integers(0, 2, COUNT)
        self.motions = rng.normal(0, 1, (COUNT, AXES, LENGTH)).astype(np.float32)
        for motion, fall in zip(self.motions, self.falls, strict=True):
            at = rng.integers(40, LENGTH - 80)
            motion[:3, at : at + (40 if fall else 4)] += 6

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        motion = self.motions[index]
        motion = np.roll(motion, int(torch.randint(-20, 20, ())), 1)
        motion = motion * (0.9 + 0.2 * torch.rand(()).item())
        return motion.clip(-200, 200), float(self.falls[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=18)
    args = parser.parse_args()
    torch.manual_seed(3061)
    loader = DataLoader(
        Motions(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        collate_fn=Collated(None if args.without else CONTRACT),
    )
    model = nn.Sequential(
        nn.Conv1d(AXES, 24, 9, stride=2), nn.ReLU(), nn.Conv1d(24, 24, 5, stride=2), nn.ReLU(),
        nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Linear(96, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for motions, falls in loader:
            logits = model(motions).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, falls)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
