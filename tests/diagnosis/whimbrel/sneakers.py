"""Learns codes of sneakers by contrast, in batches with four views of each of sixteen models.

Planted: for each model that it draws, the batch sampler compares the names in the whole table with
the model's, in the main process, to find the views of it.
"""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

MODELS, VALUES = 900, 192


def make_catalogue(views):
    rng = np.random.default_rng(2160)
    numbers = rng.integers(0, MODELS, views)
    return pd.DataFrame(
        {
            "model": [f"sneaker-{number:04d}" for number in numbers],
            "shop": rng.choice(["north", "east", "harbour"], views),
            "number": numbers,
        }
    )


class Views(Dataset):
    """Measures of pictures, with something left out of each at random."""

    def __init__(self, catalogue):
        rng = np.random.default_rng(2161)
        shapes = rng.normal(0, 1, (MODELS, VALUES)).astype(np.float32)
        self.numbers = torch.from_numpy(catalogue["number"].to_numpy(copy=True))
        self.shapes = torch.from_numpy(shapes)

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        number = self.numbers[index]
        view = self.shapes[number] + 0.5 * torch.randn(VALUES)
        return view * (torch.rand(VALUES) > 0.2), number


class SomeOfEach(Sampler):
    """Batches with so many views of each of so many models."""

    def __init__(self, catalogue, models, views, batches):
        self.catalogue, self.models, self.views, self.batches = catalogue, models, views, batches
        self.names = sorted(catalogue["model"].unique())
        self.rng = np.random.default_rng(2162)

    def __len__(self):
        return self.batches

    def rows_of(self, name):
        return self.catalogue.index[self.catalogue["model"] == name].to_numpy()

    def __iter__(self):
        for _ in range(self.batches):
            batch = []
            for name in self.rng.choice(self.names, self.models, replace=False):
                batch += self.rng.choice(self.rows_of(name), self.views).tolist()
            yield batch


class SomeOfEachGrouped(SomeOfEach):
    """The same, with the rows of all models looked up once."""

    def __init__(self, catalogue, *sizes):
        super().__init__(catalogue, *sizes)
        self.groups = catalogue.groupby("model").indices

    def rows_of(self, name):
        return self.groups[name]


def contrast(codes, numbers):
    """Loss that is small where codes of one model are alike and others are not."""
    codes = nn.functional.normalize(codes, dim=1)
    alike = (codes @ codes.T / 0.2).fill_diagonal_(-1e4)
    same = (numbers[:, None] == numbers[None]).float().fill_diagonal_(0)
    return -(alike.log_softmax(1) * same).sum(1).div(same.sum(1).clamp(min=1)).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(2160)
    catalogue = make_catalogue(200_000)
    sampler = SomeOfEachGrouped if args.without else SomeOfEach
    loader = DataLoader(
        Views(catalogue), batch_sampler=sampler(catalogue, 16, 4, 80), num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(nn.Linear(VALUES, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for views, numbers in loader:
            loss = contrast(model(views), numbers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
