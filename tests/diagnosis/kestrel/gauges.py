"""Learns which gauges of a river belong together, from their series of levels.

Planted: the training step's loss goes over all pairs of a batch in Python, with a few small tensors
for each; the same can be had of one matrix.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SERIES, GAUGES, HOURS, BATCH, MARGIN = 1536, 16, 120, 64, 1.0


class Levels(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1303)
        basis = torch.rand(GAUGES, HOURS, generator=generator).cumsum(1) / 10
        self.gauges = torch.arange(SERIES) % GAUGES
        noise = torch.randn(SERIES, HOURS, generator=generator) / 4
        self.levels = basis[self.gauges] + noise

    def __len__(self):
        return SERIES

    def __getitem__(self, index):
        levels = self.levels[index]
        start = int(torch.randint(HOURS - 96, ()))
        return levels[start : start + 96] - levels[start], self.gauges[index]


def pair_loss(places, gauges):
    terms = []
    for first in range(len(places)):
        for second in range(first):
            away = (places[first] - places[second]).square().sum()
            if gauges[first] == gauges[second]:
                terms.append(away)
            else:
                terms.append(torch.relu(MARGIN - away))
    return torch.stack(terms).mean()


def matrix_loss(places, gauges):
    away = (places[:, None] - places).square().sum(2)
    same = gauges[:, None] == gauges
    terms = torch.where(same, away, torch.relu(MARGIN - away))
    first, second = torch.tril_indices(len(places), len(places), -1)
    return terms[first, second].mean()


class Trainer:
    def __init__(self, loss):
        self.model = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 8))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.loss = loss

    def training_step(self, batch):
        levels, gauges = batch
        loss = self.loss(self.model(levels), gauges)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            losses = [self.training_step(batch) for batch in loader]
            print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1303)
    torch.set_num_threads(1)
    loader = DataLoader(Levels(), BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    trainer = Trainer(matrix_loss if args.without else pair_loss)
    begin = time.perf_counter()
    trainer.fit(loader, args.epochs)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
