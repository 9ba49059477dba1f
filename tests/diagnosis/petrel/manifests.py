"""Predicts freight from ships' manifests, a long list of dictionaries that workers inherit.

Planted: workers touch the objects of the list, so that each gets a copy of its pages. It costs
memory, and next to no time.
"""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAGE, WEIGHTS = 40, 8


def write_manifests(count):
    draw = random.Random(347)
    return [
        {
            "number": f"{number:08}",
            "weights": [draw.random() for _ in range(WEIGHTS)],
            "freight": draw.random(),
        }
        for number in range(count)
    ]


class Manifests(Dataset):
    """Pages of manifests, which are a list of dictionaries."""

    def __init__(self, manifests):
        self.manifests = manifests

    def __len__(self):
        return len(self.manifests) // PAGE

    def __getitem__(self, index):
        page = self.manifests[index * PAGE : (index + 1) * PAGE]
        weights = torch.tensor([manifest["weights"] for manifest in page])
        late = sum(manifest["number"].endswith("7") for manifest in page)
        return weights, sum(manifest["freight"] for manifest in page) / PAGE + late


class Columns(Dataset):
    """The same in three arrays."""

    def __init__(self, manifests):
        self.weights = torch.tensor([row["weights"] for row in manifests])
        self.freight = np.array([row["freight"] for row in manifests])
        self.late = np.array([row["number"].endswith("7") for row in manifests])

    def __len__(self):
        return len(self.weights) // PAGE

    def __getitem__(self, index):
        page = slice(index * PAGE, (index + 1) * PAGE)
        return self.weights[page], float(self.freight[page].mean() + self.late[page].sum())


class Freight(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.rows = nn.GRU(WEIGHTS, size, batch_first=True)
        self.head = nn.Linear(size, 1)

    def forward(self, weights):
        return self.head(self.rows(weights)[1][-1]).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(347)
    kind = Columns if args.without else Manifests
    manifests = kind(write_manifests(800_000))
    loader = DataLoader(
        manifests, batch_size=80, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = Freight()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for weights, freight in loader:
            loss = nn.functional.mse_loss(model(weights), freight.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
