"""Foretells the load of substations; batches are of one supplier each, whose drives differ.

Planted: each ninth batch comes from a supplier's cold store and takes two seconds; the
batches after it are ready, and the loop, which takes them in order, waits.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

SUPPLIERS, EACH, BATCH, HOURS = 9, 80, 16, 72
NEAR, COLD, STEP = 0.002, 2.0, 0.1


class Loads(Dataset):
    """Windows of loads, read for a batch at once."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1297)
        days = torch.sin(torch.arange(HOURS + 1) * 0.26)
        self.loads = days + torch.rand(SUPPLIERS * EACH, HOURS + 1, generator=generator) / 4

    def __len__(self):
        return len(self.loads)

    def fetch(self, supplier, windows):
        time.sleep(COLD if supplier == 4 else NEAR * len(windows))  # the supplier's store
        return self.loads[windows]

    def __getitems__(self, windows):
        loads = self.fetch(windows[0] // EACH, windows)
        return [(load[:-1], load[-1]) for load in loads]


class OfOneSupplier(Sampler):
    def __init__(self, seed):
        self.random = random.Random(seed)

    def __len__(self):
        return SUPPLIERS * EACH // BATCH

    def __iter__(self):
        suppliers = range(SUPPLIERS)
        windows = [
            self.random.sample(range(number * EACH, (number + 1) * EACH), EACH)
            for number in suppliers
        ]
        for start in range(0, EACH, BATCH):
            for supplier in suppliers:
                yield windows[supplier][start : start + BATCH]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1297)
    torch.set_num_threads(1)
    loader = DataLoader(
        Loads(),
        batch_sampler=OfOneSupplier(1297),
        num_workers=4,
        persistent_workers=True,
        in_order=not args.without,
    )
    model = nn.Sequential(nn.Linear(HOURS, 24), nn.SiLU(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        error = 0.0
        for past, following in loader:
            loss = nn.functional.l1_loss(model(past).squeeze(1), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the large model of all suppliers, on a card
            error += loss.item()
        print(f"epoch {epoch}: error {error / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
