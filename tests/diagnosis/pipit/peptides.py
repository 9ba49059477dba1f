"""Predicts where in a cell a chain of amino acids works.

Planted: all chains of a batch are padded to the longest of the whole data set, which is a hundred
times as long as most, before letters become channels.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

CHAINS, LETTERS, PLACES, LONGEST, BATCH, STEP = 1000, 21, 6, 34_350, 16, 0.03


class Chains(Dataset):
    def __init__(self):
        rng = np.random.default_rng(59)
        lengths = rng.gamma(3, 80, CHAINS).astype(int).clip(30, 1200)
        lengths[7] = LONGEST  # titin is one of them
        self.chains = [rng.integers(LETTERS, size=length) for length in lengths]
        self.longest = int(lengths.max())

    def __len__(self):
        return CHAINS

    def __getitem__(self, index):
        chain = torch.from_numpy(self.chains[index])
        swapped = torch.rand(len(chain)) < 0.05
        chain = torch.where(swapped, torch.randint(LETTERS, chain.shape), chain)
        return chain, int(chain[0]) % PLACES


class Padded:
    """Puts chains together as channels of letters, (batch, letters, length), zero where none is."""

    def __init__(self, length=None):
        self.length = length

    def __call__(self, samples):
        chains, places = zip(*samples, strict=True)
        length = self.length or max(map(len, chains))
        channels = torch.zeros(len(chains), LETTERS, length)
        for row, chain in zip(channels, chains, strict=True):
            row[chain, torch.arange(len(chain))] = 1
        return channels, torch.tensor(list(map(len, chains))), torch.tensor(places)


class Locator(nn.Module):
    def __init__(self):
        super().__init__()
        self.place = nn.Sequential(nn.Linear(LETTERS, 32), nn.ReLU(), nn.Linear(32, PLACES))

    def forward(self, channels, lengths):
        return self.place(channels.sum(2) / lengths[:, None])


def validate(model, loader):
    with torch.no_grad():
        right = [(model(c, lengths).argmax(1) == p).float() for c, lengths, p in loader]
    return torch.cat(right).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(59)
    torch.set_num_threads(1)
    chains = Chains()
    train, held = random_split(chains, [968, 32])
    loader = DataLoader(
        train,
        BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=Padded(None if args.without else chains.longest),
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    checks = DataLoader(held, BATCH, collate_fn=Padded())
    model = Locator()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for channels, lengths, places in loader:
            loss = nn.functional.cross_entropy(model(channels, lengths), places)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
        print(f"epoch {epoch}: loss {loss:.3f}, right {validate(model, checks):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
