"""A loop whose steps are all alike, or of which each tenth saves or evaluates as well.

Argument: "plain", "save" or "evaluate". It goes on until its stacks were sampled, or long enough.
"""

import os
import sys
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

STACKS = Path(os.environ["LOTUS_RUN"]) / "own_code.txt"
PASSES = 20
SEEN = []


class Data(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index


def work(units):
    for _ in range(units):
        total = 0
        for number in range(400_000):
            total += number
        if STACKS.exists():
            SEEN.append(True)


def train():
    work(1)


def save():
    work(30)


def evaluate(validation):
    for _ in validation:
        work(3)


if __name__ == "__main__":
    what = sys.argv[1]
    train_loader = DataLoader(Data())
    validation = DataLoader(Data(), batch_size=4)
    for _ in range(PASSES):
        for number, _ in enumerate(train_loader):
            train()
            if number % 10 == 9 and what == "save":
                save()
            elif number % 10 == 9 and what == "evaluate":
                evaluate(validation)
        if SEEN:
            break
