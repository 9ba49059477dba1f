"""Foretells the warmth of a brewery's vat from the readings of an afternoon."""

import argparse
import time
from multiprocessing import Manager

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BREWERIES, READINGS, WINDOW, SAMPLES, BATCH = 24, 250_000, 240, 960, 32
COLUMNS = ["vat", "cellar", "yard", "pump"]


class Afternoons(Dataset):
    """Windows of a brewery's year, whose table is put together when it is first asked for."""

    def __init__(self, tables):
        self.tables = tables

    def __len__(self):
        return SAMPLES

    def table(self, brewery):
        if brewery not in self.tables:
            rng = np.random.default_rng(brewery)
            warmth = rng.normal(0, 0.1, (READINGS, len(COLUMNS))).cumsum(0).astype(np.float32)
            self.tables[brewery] = pd.DataFrame(warmth, columns=COLUMNS)
        return self.tables[brewery]

    def __getitem__(self, index):
        table = self.table(index % BREWERIES)
        begin = index * 7919 % (READINGS - WINDOW - 12)
        window = table.iloc[begin : begin + WINDOW]
        rolled = window.rolling(12, min_periods=1).mean()
        values = np.concatenate([window.to_numpy(), rolled.to_numpy()], axis=1)
        values = (values - values.mean(0)).astype(np.float32)
        later = table["vat"].iat[begin + WINDOW + 11] - table["vat"].iat[begin + WINDOW - 1]
        return torch.from_numpy(values), torch.tensor([later], dtype=torch.float32)


class Vat(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.GRU(2 * len(COLUMNS), width, batch_first=True)
        self.last = nn.Linear(width, 1)

    def forward(self, values):
        states, _ = self.body(values)
        return self.last(states[:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(68)
    with Manager() as manager:
        loader = DataLoader(
            Afternoons({} if args.without else manager.dict()),
            BATCH,
            shuffle=True,
            num_workers=1,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
        model = Vat()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for values, later in loader:
                loss = nn.functional.mse_loss(model(values), later)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
