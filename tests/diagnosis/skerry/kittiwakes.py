"""Counts kittiwakes on ledges; pictures, tides and winds come from a store with a quota.

Planted: the store gives all workers together a fixed number of answers a second, and each sample
asks it three times.
"""

import argparse
import time

import torch
from torch import multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 110.0


class Quota:
    """A bucket of tokens that is shared by processes: RATE tokens a second, and none in stock."""

    def __init__(self):
        self.turn = mp.get_context("fork").Value("d", 0.0)

    def take(self):
        with self.turn.get_lock():
            turn = max(self.turn.value, time.monotonic())
            self.turn.value = turn + 1 / RATE
        time.sleep(max(0.0, turn - time.monotonic()))


class Store:
    def __init__(self):
        self.quota = Quota()
        draw = torch.Generator().manual_seed(37)
        self.content = {
            "picture": torch.rand(64, 3, 56, 56, generator=draw),
            "tide": torch.rand(64, 4, generator=draw),
            "wind": torch.rand(64, 2, generator=draw),
        }

    def get(self, *keys):
        """Return the contents of (name, number) pairs, for one token."""
        self.quota.take()
        return [self.content[name][number % 64] for name, number in keys]


class Ledges(Dataset):
    def __init__(self, store, together, count=256):
        self.store, self.together, self.count = store, together, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        keys = [(name, index) for name in ("picture", "tide", "wind")]
        if self.together:
            picture, tide, wind = self.store.get(*keys)
        else:
            picture, tide, wind = (self.store.get(key)[0] for key in keys)
        if torch.rand(1) < 0.5:
            picture = picture.flip(2)
        return {"picture": picture, "around": torch.cat([tide, wind]), "birds": float(index % 40)}


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 24, 5, 2), nn.SiLU(), nn.Conv2d(24, 32, 3, 2), nn.SiLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(128 + 6, 1)

    def forward(self, picture, around):
        return self.head(torch.cat([self.body(picture), around], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(37)
    ledges = Ledges(Store(), together=args.without)
    loader = DataLoader(ledges, batch_size=16, shuffle=True, num_workers=3, persistent_workers=True)
    model = Counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in loader:
            guess = model(batch["picture"], batch["around"])
            loss = nn.functional.smooth_l1_loss(guess, batch["birds"].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
