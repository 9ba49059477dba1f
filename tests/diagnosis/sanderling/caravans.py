"""Predicts the price of a used caravan from a table of advertisements.

Nothing is planted: a wide network is the work. Its input, rows of one tensor, is taken without
workers; after each epoch, a part that was kept back is predicted, and the best network is kept.
"""

import argparse
import copy
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

ADVERTS, MAKERS = 6000, 30


def make_table():
    rng = np.random.default_rng(1213)
    table = pd.DataFrame(
        {
            "maker": rng.choice([f"maker {number}" for number in range(MAKERS)], ADVERTS),
            "year": rng.integers(1975, 2024, ADVERTS),
            "length": rng.normal(6.2, 0.9, ADVERTS).round(2),
            "berths": rng.integers(2, 7, ADVERTS),
            "awning": rng.random(ADVERTS) < 0.4,
        }
    )
    table["price"] = 200 * (table["year"] - 1970) + 900 * table["length"] + 800 * table["awning"]
    return table


def as_tensors(table):
    values = pd.get_dummies(table.drop(columns="price"), columns=["maker"]).astype("float32")
    values = (values - values.mean()) / values.std()
    prices = table["price"].to_numpy(np.float32) / 10_000
    return torch.from_numpy(values.to_numpy(copy=True)), torch.from_numpy(prices)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1213)
    adverts = TensorDataset(*as_tensors(make_table()))
    known, kept = random_split(adverts, [5000, 1000])
    train_loader = DataLoader(known, batch_size=100, shuffle=True, drop_last=True)
    test_loader = DataLoader(kept, batch_size=250)
    width = adverts.tensors[0].shape[1]
    model = nn.Sequential(
        nn.Linear(width, 768), nn.GELU(), nn.Linear(768, 1024), nn.GELU(),
        nn.Linear(1024, 768), nn.GELU(), nn.Linear(768, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    best, best_loss = None, float("inf")
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        for values, prices in train_loader:
            loss = nn.functional.huber_loss(model(values).squeeze(1), prices)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [
                nn.functional.l1_loss(model(values).squeeze(1), prices).item()
                for values, prices in test_loader
            ]
        if np.mean(losses) < best_loss:
            best, best_loss = copy.deepcopy(model.state_dict()), float(np.mean(losses))
        print(f"epoch {epoch}: loss {loss:.4f}, best of {len(best)} tensors {best_loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
