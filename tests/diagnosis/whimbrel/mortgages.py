"""Predicts which mortgages are paid back early, from a stream of rows that is shuffled.

Planted: the workers send row by row, and the rows are put together to batches in the main process,
behind the loader, so that each batch crosses in 80 parts.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

VALUES, KINDS, BATCH = 20, 5, 80


class Rows(IterableDataset):
    """Rows of a table, shuffled through a buffer."""

    def __init__(self, count, buffer=800):
        rng = np.random.default_rng(2240)
        self.values = rng.normal(0, 1, (count, VALUES)).astype(np.float32)
        self.kinds = rng.integers(0, 40, (count, KINDS))
        self.early = (self.values[:, :4].sum(1) + rng.normal(0, 1, count) > 1).astype(np.float32)
        self.buffer = buffer

    def row(self, index):
        return {
            "values": torch.from_numpy(self.values[index]),
            "kinds": torch.from_numpy(self.kinds[index]),
            "early": torch.tensor(self.early[index]),
        }

    def __len__(self):
        return len(self.early)

    def __iter__(self):
        info = get_worker_info()
        rng = np.random.default_rng(info.seed)
        kept = []
        for index in range(info.id, len(self.early), info.num_workers):
            if len(kept) < self.buffer:
                kept.append(index)
                continue
            place = rng.integers(self.buffer)
            yield self.row(kept[place])
            kept[place] = index
        for index in rng.permutation(kept):
            yield self.row(index)


class InBatches:
    """Puts what comes from a loader together to batches."""

    def __init__(self, rows, size):
        self.rows, self.size = rows, size

    def __iter__(self):
        batch = []
        for row in self.rows:
            batch.append(row)
            if len(batch) == self.size:
                yield default_collate(batch)
                batch = []


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(40, 6)
        self.layers = nn.Sequential(
            nn.Linear(VALUES + 6 * KINDS, 160), nn.ReLU(), nn.Dropout(0.1), nn.Linear(160, 160),
            nn.ReLU(), nn.Linear(160, 1),
        )  # fmt: skip

    def forward(self, batch):
        values = torch.cat([batch["values"], self.kinds(batch["kinds"]).flatten(1)], 1)
        return self.layers(values).squeeze(1)


def make_batches(rows, in_workers):
    options = {"num_workers": 2, "persistent_workers": True}
    if in_workers:
        return DataLoader(rows, batch_size=BATCH, drop_last=True, **options)
    return InBatches(DataLoader(rows, batch_size=None, **options), BATCH)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(2240)
    batches = make_batches(Rows(8000), args.without)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in batches:
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch), batch["early"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del batches


if __name__ == "__main__":
    main()
