"""Finds hornets' nests by what is known of the trees around them.

Planted: the table of districts is a Manager's dictionary that workers share, from which each sample
takes the whole entry of a district, all its trees, for the few trees that it wants.
"""

import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DISTRICTS, TREES, NEAR, NESTS, BATCH, STEP = 8, 8000, 24, 1200, 16, 0.015


def survey():
    rng = np.random.default_rng(67)
    table = {}
    for district in range(DISTRICTS):
        places = rng.random((TREES, 2)).tolist()
        table[district] = {
            "trees": [
                {"x": x, "y": y, "kind": n % 9, "height": 4 + n % 23, "hollow": n % 7 == 0}
                for n, (x, y) in enumerate(places)
            ],
            "humid": float(rng.random()),
        }
    return table


class Surroundings(Dataset):
    def __init__(self, districts):
        self.districts = districts

    def __len__(self):
        return NESTS

    def __getitem__(self, index):
        district = self.districts[index % DISTRICTS]
        trees = district["trees"]
        start = int(torch.randint(TREES - NEAR, ()))
        near = trees[start : start + NEAR]
        rows = torch.tensor([[t["x"], t["y"], t["kind"], t["height"], t["hollow"]] for t in near])
        rows[:, :2] += 0.01 * torch.randn(NEAR, 2)
        apart = torch.cdist(rows[:, :2], rows[:, :2]).sort(1).values[:, 1:9]
        return torch.cat([rows, apart], 1), rows[:, 4].mean() + district["humid"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(67)
    torch.set_num_threads(1)
    with multiprocessing.Manager() as manager:
        table = survey()
        districts = table if args.without else manager.dict(table)
        loader = DataLoader(
            Surroundings(districts),
            BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
        )
        model = nn.Sequential(nn.Flatten(), nn.Linear(NEAR * 13, 64), nn.ReLU(), nn.Linear(64, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for trees, danger in loader:
                loss = nn.functional.mse_loss(model(trees).squeeze(1), danger)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the map's network
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
