"""Learns which pizza a customer orders next, from orders of one month a batch.

Planted: old months come from an archive on tape, which takes a second for a batch, and what the
other workers have made waits until such a batch has had its turn.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset

MONTHS, OLD, BATCH, KINDS, TAPE = 48, 4, 24, 20, 0.9


class Orders(Dataset):
    def __init__(self, each):
        rng = np.random.default_rng(811)
        self.orders = rng.integers(0, KINDS, (MONTHS * each, 12))
        self.each = each

    def __len__(self):
        return len(self.orders)

    def read(self, month, numbers):
        time.sleep(TAPE if month < OLD else 0.02)
        return torch.from_numpy(self.orders[numbers])

    def __getitems__(self, numbers):
        rows = self.read(numbers[0] // self.each, numbers)
        return [(row[:-1], row[-1]) for row in rows]


class ByMonth(BatchSampler):
    """Batches of orders of the same month, in random order."""

    def __init__(self, each, size):
        self.each, self.size = each, size

    def __len__(self):
        return MONTHS * (self.each // self.size)

    def __iter__(self):
        batches = []
        for month in range(MONTHS):
            order = (torch.randperm(self.each) + month * self.each).tolist()
            batches += [order[at : at + self.size] for at in range(0, self.each, self.size)]
        for place in torch.randperm(len(batches)).tolist():
            yield batches[place]


class Taste(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(KINDS, 32)
        self.memory = nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, KINDS)

    def forward(self, orders):
        return self.head(self.memory(self.kinds(orders))[1][-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(811)
    each = 3 * BATCH
    loader = DataLoader(
        Orders(each), batch_sampler=ByMonth(each, BATCH), num_workers=3,
        in_order=not args.without,
    )  # fmt: skip
    model = Taste()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for orders, following in loader:
            loss = nn.functional.cross_entropy(model(orders), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
