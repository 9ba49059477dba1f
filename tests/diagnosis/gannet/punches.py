"""Learns which letters two punches cut, from all pairs of their pictures, some of them each epoch.

Planted: all pairs are five million, and the sampler of `shuffle=True` makes a list of all of them
in a random order at the begin of an epoch that then takes a few hundred batches.
"""

import argparse
import time
from itertools import islice

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

PUNCHES, SIDE, BATCH, BATCHES = 2_240, 20, 24, 90


class Pairs(Dataset):
    """All pairs of pictures, and whether both are of one letter."""

    def __init__(self):
        draw = torch.Generator().manual_seed(487)
        self.pictures = torch.rand(PUNCHES, 1, SIDE, SIDE, generator=draw)
        self.letters = torch.randint(26, (PUNCHES,), generator=draw)

    def __len__(self):
        return PUNCHES * PUNCHES

    def __getitem__(self, index):
        first, second = divmod(index, PUNCHES)
        same = self.letters[first] == self.letters[second]
        return self.pictures[first], self.pictures[second], same.float()


class Alike(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, width, 3),
            nn.ReLU(), nn.Flatten(), nn.Linear(width * 49, 32),
        )  # fmt: skip
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, first, second):
        return self.scale * nn.functional.cosine_similarity(self.body(first), self.body(second))


def train(model, optimizer, batches):
    """Train with batches, with two parts of a batch for each change of the weights."""
    total = 0.0
    for number, (first, second, same) in enumerate(batches):
        loss = nn.functional.binary_cross_entropy_with_logits(model(first, second), same)
        (loss / 2).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
        total += loss.item()
    return total / BATCHES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(487)
    pairs = Pairs()
    if args.without:
        order = {"sampler": RandomSampler(pairs, replacement=True, num_samples=BATCHES * BATCH)}
    else:
        order = {"shuffle": True}
    loader = DataLoader(pairs, batch_size=BATCH, num_workers=1, persistent_workers=True, **order)
    model = Alike()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss = train(model, optimizer, islice(loader, BATCHES))
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
