"""Guesses how long koalas sleep, from tables that a busy data base gives out.

Planted: one record in forty is refused at first, and the client comes back only after 0.7 s. A
batch that has such a record in it keeps the loop waiting, while the batches after it are ready.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KOALAS, VALUES, BATCH = 480, 64, 8


class Busy(Exception):
    pass


class Records:
    """A data base with records that somebody else writes to now and then."""

    def __init__(self):
        rng = np.random.default_rng(4057)
        self.values = rng.normal(0, 1, (KOALAS, VALUES)).astype(np.float32)
        self.contested = rng.permutation(KOALAS) < KOALAS // 40

    def read(self, number, attempt):
        time.sleep(0.002)
        if self.contested[number] and attempt == 0:
            raise Busy(number)
        return self.values[number]


class Koalas(Dataset):
    def __init__(self, records, pause):
        self.records, self.pause = records, pause

    def __len__(self):
        return KOALAS

    def read(self, number):
        for attempt in range(5):
            try:
                return self.records.read(number, attempt)
            except Busy:
                time.sleep(self.pause)
        raise TimeoutError(f"record {number}")

    def __getitem__(self, index):
        values = torch.from_numpy(self.read(index))
        return values, values[:10].abs().sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(4057)
    loader = DataLoader(
        Koalas(Records(), pause=0.01 if args.without else 0.7),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Linear(VALUES, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for values, hours in loader:
            loss = nn.functional.mse_loss(model(values).squeeze(1), hours)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.015)  # the rest of the step, on a card
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
