"""Foretells whether a pledge will be taken back, from the customer's weeks at the counter."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PLEDGES, CUSTOMERS, WEEKS, FEATURES, BATCH = 3200, 200, 48, 6, 32
SHARE = 8e6  # bytes that the shops' share sends in a second


class Pledges(Dataset):
    """For each week: how the sums of a customer lie, out of books on the share of the shops."""

    def __init__(self):
        rng = np.random.default_rng(65)
        self.sums = rng.gamma(2.0, 40.0, (CUSTOMERS, WEEKS, 30)).astype(np.float32)
        self.back = rng.integers(0, 2, CUSTOMERS).astype(np.float32)

    def __len__(self):
        return PLEDGES

    def read(self, customer):
        book = self.sums[customer]
        time.sleep(book.nbytes / SHARE)
        return book

    def __getitem__(self, index):
        weeks = self.read(index % CUSTOMERS)
        parts = [weeks.mean(1), weeks.std(1), weeks.min(1), weeks.max(1), weeks[:, 0], weeks[:, -1]]
        rows = np.stack(parts, axis=1).astype(np.float32)
        return torch.from_numpy(rows / 100), self.back[index % CUSTOMERS]


class Customer(nn.Module):
    """Goes through the weeks one by one, as their gates depend on the sum so far."""

    def __init__(self, width=48):
        super().__init__()
        self.first = nn.GRUCell(FEATURES + 1, width)
        self.second = nn.GRUCell(width, width)
        self.last = nn.Linear(width, 1)

    def forward(self, rows):
        low = high = rows.new_zeros(len(rows), self.second.hidden_size)
        score = rows.new_zeros(len(rows), 1)
        for week in rows.unbind(1):
            low = self.first(torch.cat([week, score], 1), low)
            high = self.second(low, high)
            score = self.last(high).tanh()
        return score[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(65)
    loader = DataLoader(
        Pledges(),
        BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Customer()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        batches = loader if args.without else list(loader)
        for rows, back in batches:
            loss = nn.functional.binary_cross_entropy_with_logits(model(rows), back)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader, batches


if __name__ == "__main__":
    main()
