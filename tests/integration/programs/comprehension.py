"""Trains in a comprehension, without end: its result is `losses` or `total`."""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 40_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.zeros(4)


def step(batch: torch.Tensor) -> float:
    time.sleep(0.02)
    return float(batch.sum())


def main() -> None:
    loader = DataLoader(Pictures(), batch_size=8, num_workers=2)
    while True:
        if sys.argv[1] == "losses":
            losses = [step(batch) for batch in loader]
        else:
            total = sum(step(batch) for batch in loader)
        print(losses if sys.argv[1] == "losses" else total)


if __name__ == "__main__":
    main()
