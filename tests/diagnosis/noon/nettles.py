"""Growth of nettles from the weather, as a table; no workers, and folds one after another."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


def weather(days=4800):
    rng = np.random.default_rng(23)
    table = pd.DataFrame(rng.normal(size=(days, 12)), columns=[f"w{n}" for n in range(12)])
    table["growth"] = table[["w0", "w3", "w5"]].rolling(10, min_periods=1).mean().sum(axis=1)
    return table


class Weeks(Dataset):
    """Four weeks of weather, and how much the nettles grew on the last day."""

    def __init__(self, table, days=28):
        self.rows = torch.tensor(table.drop(columns="growth").to_numpy(np.float32))
        self.growth = torch.tensor(table["growth"].to_numpy(np.float32))
        self.days = days

    def __len__(self):
        return len(self.growth) - self.days

    def __getitem__(self, index):
        end = index + self.days
        return self.rows[index:end], self.growth[end - 1]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(96, 4, 256, batch_first=True, dropout=0.0)
        self.widen, self.layers = nn.Linear(12, 96), nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(96, 1)

    def forward(self, weeks):
        return self.head(self.layers(self.widen(weeks))[:, -1])[:, 0]


def train_fold(data, fold, folds=4):
    numbers = torch.arange(len(data))
    inside = Subset(data, numbers[numbers % folds != fold].tolist())
    outside = Subset(data, numbers[numbers % folds == fold].tolist())
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for weeks, growth in DataLoader(inside, batch_size=48, shuffle=True):
        loss = nn.functional.mse_loss(model(weeks), growth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        errors = [(model(w) - g).square().mean() for w, g in DataLoader(outside, batch_size=96)]
    return torch.stack(errors).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folds", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(23)
    data = Weeks(weather())
    begin = time.perf_counter()
    for fold in range(args.folds):
        print(f"fold {fold}: error {train_fold(data, fold):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
