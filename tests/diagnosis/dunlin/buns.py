"""Learns which buns go with which drink, with new negatives in each epoch.

Planted: each epoch makes a new data set and a new loader for its negatives, and the three workers
of a new loader read the table of names again. The table of pairs itself never changes.
"""

import argparse
import json
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

THINGS, PAIRS, WORKERS = 4000, 2048, 3


def make_names():
    rng = np.random.default_rng(19)
    rows = {str(number): rng.integers(0, 4000, 12).tolist() for number in range(30_000)}
    return json.dumps(rows)


NAMES = make_names()


class Pairs(Dataset):
    """Pairs of things that were bought together, and a third one that was not."""

    def __init__(self, negatives):
        rng = np.random.default_rng(20)
        self.pairs = rng.integers(0, THINGS, (PAIRS, 2))
        self.negatives, self.words = negatives, None

    def read_names(self):
        self.words = json.loads(NAMES)

    def __len__(self):
        return PAIRS

    def __getitem__(self, index):
        things = [*self.pairs[index].tolist(), int(self.negatives[index])]
        return torch.tensor([self.words[str(thing)] for thing in things])


def prepare(number):
    torch.utils.data.get_worker_info().dataset.read_names()


def make_loader(negatives, keep):
    return DataLoader(
        Pairs(negatives),
        batch_size=64,
        shuffle=True,
        num_workers=WORKERS,
        worker_init_fn=prepare,
        persistent_workers=keep,
    )


class Matcher(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words = nn.EmbeddingBag(4000, width)
        self.layers = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, width))

    def forward(self, names):
        one, other, third = self.layers(self.words(names.flatten(0, 1))).view(-1, 3, 64).unbind(1)
        return (one * other).sum(1) - (one * third).sum(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=24)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(19)
    negatives = torch.zeros(PAIRS, dtype=torch.int64).share_memory_()
    loader = make_loader(negatives, keep=True) if args.without else None
    model = Matcher()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        negatives.random_(THINGS)
        if not args.without:
            loader = make_loader(negatives, keep=False)
        for names in loader:
            loss = nn.functional.softplus(-model(names)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
