"""Values pearls; rare ones are drawn more often than common ones.

Planted: the sampler draws each index with a call of its own, which goes over the weights of all
pearls.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

PEARLS, DRAWN, MEASURES = 60_000, 6000, 20


class Pearls(Dataset):
    def __init__(self):
        rng = np.random.default_rng(797)
        self.measures = rng.standard_normal((PEARLS, MEASURES)).astype(np.float32)
        self.sizes = rng.gamma(2, 2, PEARLS)

    def __len__(self):
        return PEARLS

    def __getitem__(self, index):
        measures = self.measures[index]
        lustre = np.sort(measures)[-5:]
        value = float(np.log1p(self.sizes[index]))
        return torch.from_numpy(np.concatenate([measures, lustre])), value


class RareFirst(Sampler):
    """Draws pearls with weights that grow with their size."""

    def __init__(self, sizes, count, at_once):
        self.weights = sizes / sizes.sum()
        self.count, self.at_once = count, at_once
        self.rng = np.random.default_rng(798)

    def __len__(self):
        return self.count

    def __iter__(self):
        if self.at_once:
            yield from self.rng.choice(len(self.weights), self.count, p=self.weights).tolist()
            return
        for _ in range(self.count):
            yield int(self.rng.choice(len(self.weights), p=self.weights))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(797)
    pearls = Pearls()
    loader = DataLoader(
        pearls, batch_size=30, sampler=RareFirst(pearls.sizes, DRAWN, args.without),
        num_workers=2, persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Linear(MEASURES + 5, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for measures, values in loader:
            loss = nn.functional.mse_loss(model(measures).squeeze(1), values.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
