"""Recommends garden tools from visits: a customer's history is picked from one table."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TOOLS = 500


def make_visits(customers=2000, visits=400_000, seed=15):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "customer": rng.integers(customers, size=visits),
            "tool": rng.integers(TOOLS, size=visits),
            "minutes": rng.exponential(4, visits),
        }
    )


class Histories(Dataset):
    """The last 20 tools that a customer looked at, and the one before them."""

    def __init__(self, visits, grouped=False):
        self.visits = visits
        self.customers = visits["customer"].unique()
        self.by_customer = None
        if grouped:
            tools = visits["tool"].to_numpy()
            places = visits.groupby("customer").indices
            self.by_customer = {customer: tools[place] for customer, place in places.items()}

    def __len__(self):
        return len(self.customers)

    def history(self, customer):
        if self.by_customer is not None:
            return self.by_customer[customer]
        return self.visits[self.visits["customer"] == customer]["tool"].to_numpy()

    def __getitem__(self, index):
        tools = np.resize(self.history(self.customers[index]), 21)
        return torch.from_numpy(tools[1:].copy()), int(tools[0])


class Recommender(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.tools = nn.Embedding(TOOLS, size)
        self.recurrent = nn.GRU(size, size, batch_first=True)
        self.head = nn.Linear(size, TOOLS)

    def forward(self, history):
        return self.head(self.recurrent(self.tools(history))[1][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(15)
    histories = Histories(make_visits(), grouped=args.without)
    loader = DataLoader(histories, batch_size=32, shuffle=True, num_workers=1)
    model = Recommender()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for history, tool in loader:
            loss = nn.functional.cross_entropy(model(history), tool)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
