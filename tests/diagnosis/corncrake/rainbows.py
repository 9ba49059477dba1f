"""Forecasts rainbows from the sensors of weather stations, kept in a table of pandas."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOURS, SEEN, BATCH = 1600, 24, 32


def made_up_table():
    rng = np.random.default_rng(151)
    return pd.DataFrame(
        {
            "hour": pd.date_range("2023-03-01", periods=HOURS, freq="h"),
            "rain": rng.gamma(1, 1, HOURS),
            "sun": rng.uniform(0, 1, HOURS),
            "wind": rng.normal(4, 1, HOURS),
        }
    )


class Windows(Dataset):
    def __init__(self, table):
        self.table = table

    def __len__(self):
        return HOURS - SEEN

    def __getitem__(self, index):
        rows = self.table.iloc[index : index + SEEN]
        values = rows[["rain", "sun", "wind"]].to_numpy(np.float32)
        last = self.table.iloc[index + SEEN]
        return torch.from_numpy(values), float(last["rain"] > 0.3 and last["sun"] > 0.5)


def train_on_device(model, windows, rainbows):
    """Stands in for the step on a GPU; only the last layer is learnt here."""
    time.sleep(0.24)
    logits = model(windows.mean(1)).squeeze(1)
    return nn.functional.binary_cross_entropy_with_logits(logits, rainbows.float())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(151)
    torch.set_num_threads(1)
    loader = DataLoader(
        Windows(made_up_table()),
        batch_size=BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
    )
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for windows, rainbows in loader:
            loss = train_on_device(model, windows, rainbows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
