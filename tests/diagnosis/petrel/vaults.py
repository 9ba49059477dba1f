"""Learns to tell coins of a vault apart, and looks for coins that are easily confused.

Planted: after each epoch, every coin is held against all others in turn to find its hardest pair,
and no batch is drawn until that is done.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, MINTS, COINS = 128, 40, 2400


class Pairs(Dataset):
    """Coins, each with another one of the same mint and its hardest of another mint."""

    def __init__(self):
        rng = np.random.default_rng(337)
        self.mints = torch.arange(COINS) % MINTS
        centres = rng.standard_normal((MINTS, SIZE), dtype=np.float32)
        noise = rng.standard_normal((COINS, SIZE), dtype=np.float32)
        self.profiles = torch.from_numpy(centres[self.mints.numpy()] + noise)
        self.hardest = torch.randint(COINS, (COINS,))

    def __len__(self):
        return COINS

    def __getitem__(self, index):
        same = (index + MINTS) % COINS
        return self.profiles[[index, same, int(self.hardest[index])]]


@torch.no_grad()
def find_hardest(model, coins):
    """Return the nearest coin of another mint for each coin."""
    seen = model(coins.profiles)
    hardest = []
    for index in range(COINS):
        apart = {}
        for other, distance in enumerate((seen - seen[index]).norm(dim=1).tolist()):
            apart[other] = distance
        others = sorted(apart, key=apart.get)
        hardest.append(next(one for one in others if one % MINTS != index % MINTS))
    return torch.tensor(hardest)


@torch.no_grad()
def find_hardest_at_once(model, coins):
    seen = model(coins.profiles)
    same = coins.mints[:, None] == coins.mints[None, :]
    return torch.cdist(seen, seen).masked_fill(same, float("inf")).argmin(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(337)
    coins = Pairs()
    find = find_hardest_at_once if args.without else find_hardest
    loader = DataLoader(coins, batch_size=40, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(SIZE, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU())
    model.append(nn.Linear(512, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for triplets in loader:
            coin, same, other = model(triplets).unbind(1)
            loss = nn.functional.triplet_margin_loss(coin, same, other)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        coins.hardest = find(model, coins)
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
