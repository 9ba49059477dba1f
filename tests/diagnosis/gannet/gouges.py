"""Ranks gouges by their wear, from records that are looked up by number, with a validation.

Planted: the validation looks the records of a batch up by going through the numbers of all records,
in the main process; training looks them up in a sorted list.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORDS, FIELDS = 3_000_000, 12


class Table:
    """Records that are known by a number of eight digits."""

    def __init__(self):
        rng = np.random.default_rng(443)
        self.numbers = rng.integers(1, 60, RECORDS).cumsum()
        self.values = rng.random((4096, FIELDS), dtype=np.float32)

    def rows(self, places):
        return self.values[places % len(self.values)]

    def at(self, numbers):
        return self.rows(np.searchsorted(self.numbers, numbers))

    def where(self, numbers):
        return self.rows(np.flatnonzero(np.isin(self.numbers, numbers, kind="sort")))


class Gouges(Dataset):
    """Yields records in batches; the worn ones have been turned into ranks."""

    def __init__(self, table, first, count, look_up):
        self.table, self.look_up = table, look_up
        self.chosen = table.numbers[first : first + 5 * count : 5]

    def __len__(self):
        return len(self.chosen)

    def __getitems__(self, indices):
        rows = self.look_up(self.chosen[np.sort(indices)])
        ranks = np.argsort(np.argsort(rows, 1), 1).astype(np.float32) / FIELDS
        rows = np.concatenate([rows, ranks], 1)
        return list(zip(torch.from_numpy(rows), torch.from_numpy(rows[:, :3].sum(1)), strict=True))


class Wear(nn.Module):
    def __init__(self, size=384):
        super().__init__()
        self.enter = nn.Linear(2 * FIELDS, size)
        self.middle = nn.ModuleList(nn.Linear(size, size) for _ in range(3))
        self.leave = nn.Linear(size, 1)

    def forward(self, rows):
        hidden = self.enter(rows)
        for layer in self.middle:
            hidden = hidden + torch.relu(layer(hidden))
        return self.leave(hidden).squeeze(1)


def train(model, loader, optimizer):
    begin = time.perf_counter()
    for rows, worn in loader:
        loss = nn.functional.mse_loss(model(rows), worn)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f} training, loss {loss.item():.4f}")


@torch.no_grad()
def validate(model, loader):
    begin = time.perf_counter()
    errors = [(model(rows) - worn).abs().mean().item() for rows, worn in loader]
    print(f"seconds {time.perf_counter() - begin:.3f} validation, {np.mean(errors):.4f} off")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(443)
    table = Table()
    worn, held_out = Gouges(table, 0, 2400, table.at), Gouges(table, 3, 480, table.where)
    if args.without:
        held_out.look_up = table.at
    training = DataLoader(worn, batch_size=48, shuffle=True, num_workers=1, persistent_workers=True)
    validation = DataLoader(held_out, batch_size=48)
    model = Wear()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(args.epochs):
        train(model, training, optimizer)
        validate(model, validation)


if __name__ == "__main__":
    main()
