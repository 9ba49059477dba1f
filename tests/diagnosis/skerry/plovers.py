"""Learns to tell plovers apart, with two batches without labels for each batch with labels.

Planted: each batch without labels is the first one of a new iteration of its loader, which starts
its workers for it and ends them again.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = 4


class Plovers(Dataset):
    def __init__(self, count, seed, labelled):
        draw = torch.Generator().manual_seed(seed)
        self.plumage = torch.rand(count, 160, generator=draw)
        self.labelled = labelled

    def __len__(self):
        return len(self.plumage)

    def __getitem__(self, index):
        plumage = self.plumage[index] + torch.randn(160) * 0.02
        return (plumage, index % KINDS) if self.labelled else plumage


def forever(loader):
    while True:
        yield from loader


class Trainer:
    def __init__(self, restart):
        self.labelled = DataLoader(
            Plovers(640, 1, True), batch_size=16, shuffle=True, num_workers=1,
            persistent_workers=True,
        )  # fmt: skip
        self.unlabelled = DataLoader(
            Plovers(4000, 2, False), batch_size=32, shuffle=True, num_workers=2
        )
        self.restart, self.more = restart, forever(self.unlabelled)
        self.body = nn.Sequential(nn.Linear(160, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.head, self.back = nn.Linear(256, KINDS), nn.Linear(256, 160)
        layers = nn.ModuleList([self.body, self.head, self.back])
        self.optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3)

    def next_unlabelled(self):
        if self.restart:
            return next(iter(self.unlabelled))
        return next(self.more)

    def step(self, plumage, kinds):
        loss = nn.functional.cross_entropy(self.head(self.body(plumage)), kinds)
        for _ in range(2):
            other = self.next_unlabelled()
            loss = loss + nn.functional.mse_loss(self.back(self.body(other)), other)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, epochs):
        for epoch in range(epochs):
            losses = [self.step(plumage, kinds) for plumage, kinds in self.labelled]
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(97)
    trainer = Trainer(restart=not args.without)
    begin = time.perf_counter()
    trainer.fit(args.epochs)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del trainer


if __name__ == "__main__":
    main()
