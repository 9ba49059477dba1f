"""Predicts what a customer buys next, from a table of purchases in a data frame.

Planted: __getitem__ filters the whole frame for the customer's rows and sorts them, for each
sample. There are no workers.
"""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ITEMS, LAST, ROWS = 200, 24, 60_000


def read_purchases(customers):
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "customer": rng.integers(0, customers, ROWS),
            "item": rng.integers(1, ITEMS, ROWS),
            "day": rng.integers(0, 365, ROWS),
            "price": rng.gamma(2.0, 8.0, ROWS),
        }
    )


class Customers(Dataset):
    """The last purchases of each customer, and the item that followed them."""

    def __init__(self, frame, customers, grouped):
        self.frame, self.customers = frame, customers
        self.groups = None
        if grouped:
            ordered = frame.sort_values("day")
            self.groups = {
                number: (part["item"].to_numpy(), part["price"].to_numpy())
                for number, part in ordered.groupby("customer")
            }

    def __len__(self):
        return self.customers

    def history_of(self, customer):
        if self.groups is not None:
            return self.groups[customer]
        rows = self.frame[self.frame["customer"] == customer].sort_values("day")
        return rows["item"].to_numpy(), rows["price"].to_numpy()

    def __getitem__(self, index):
        item, price = self.history_of(index)
        items, prices = np.zeros(LAST, np.int64), np.zeros(LAST, np.float32)
        known = min(LAST, len(item) - 1)
        items[LAST - known :] = item[-known - 1 : -1]
        prices[LAST - known :] = np.log1p(price[-known - 1 : -1])
        return items, prices, int(item[-1])


class Shop(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.items = nn.Embedding(ITEMS, width - 1)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, ITEMS)

    def forward(self, items, prices):
        states, _ = self.rnn(torch.cat([self.items(items), prices[..., None]], -1))
        return self.out(states[:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    customers = Customers(read_purchases(1600), 1600, grouped=args.without)
    loader = DataLoader(customers, batch_size=32, shuffle=True)
    model = Shop()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for items, prices, target in loader:
            loss = nn.functional.cross_entropy(model(items, prices), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
