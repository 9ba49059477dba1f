"""Orders flour for bakers: how much each of them will need next week, from a table of sales."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WEEKS, SHOPS, DAYS, BATCH = 2560, 120, 84, 64
GOODS = ["rolls", "loaves", "rye", "tarts", "pretzels", "buns", "flans", "scones"]


class Sales(Dataset):
    """Twelve weeks of a shop's sales, out of a table that is made into an array once."""

    def __init__(self):
        rng = np.random.default_rng(78)
        days = pd.date_range("2022-01-03", periods=400)
        tables = []
        for shop in range(SHOPS):
            sold = rng.poisson(20 + shop % 30, (len(days), len(GOODS)))
            table = pd.DataFrame(sold, index=days, columns=GOODS, dtype="float32")
            tables.append(table.sub(table.mean()).div(table.std()).to_numpy(np.float32))
        self.sales = torch.from_numpy(np.stack(tables))

    def __len__(self):
        return WEEKS

    def __getitem__(self, index):
        begin = index * 7 % 300
        shop = self.sales[index % SHOPS]
        return shop[begin : begin + DAYS], shop[begin + DAYS : begin + DAYS + 7].mean(0)


class Flour(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.first = nn.Linear(len(GOODS), width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.last = nn.Linear(width, len(GOODS))

    def forward(self, days):
        return self.last(self.body(self.first(days)).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(78)
    loader = DataLoader(
        Sales(),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = Flour()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for days, needed in loader:
            loss = nn.functional.mse_loss(model(days), needed)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
