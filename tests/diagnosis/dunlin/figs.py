"""Recommends figs and other fruit, and keeps the state of each epoch.

Planted: after each epoch the state of model and optimizer is compressed and written while the
training stands still. Two kept workers sample negatives, which is little work.
"""

import argparse
import gzip
import io
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

USERS, FRUIT, WIDTH = 12_000, 3_000, 32


class Ratings(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(59)
        self.user = rng.integers(0, USERS, count)
        self.fruit = rng.integers(0, FRUIT, count)

    def __len__(self):
        return len(self.user)

    def __getitem__(self, index):
        others = torch.randint(FRUIT, (8,))
        return int(self.user[index]), int(self.fruit[index]), others


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.fruit = nn.Embedding(USERS, WIDTH), nn.Embedding(FRUIT, WIDTH)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, WIDTH))

    def forward(self, user, fruit, others):
        mine = self.layers(self.users(user))
        liked = (mine * self.fruit(fruit)).sum(1, keepdim=True)
        return liked - (mine[:, None] * self.fruit(others)).sum(2)


class Keeper:
    """Writes states to a folder, and says which one was best."""

    def __init__(self, folder, compress):
        self.folder, self.compress = Path(folder), compress
        self.losses = {}

    def save(self, epoch, model, optimizer, loss):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        buffer = io.BytesIO()
        torch.save(state, buffer)
        data = buffer.getvalue()
        if self.compress:
            data = gzip.compress(data, 6)
        (self.folder / f"epoch{epoch}.pt").write_bytes(data)
        self.losses[epoch] = loss
        return min(self.losses, key=self.losses.get)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(59)
    loader = DataLoader(
        Ratings(6400), batch_size=128, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = Factors()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(folder, compress=not args.without)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for user, fruit, others in loader:
                loss = nn.functional.softplus(-model(user, fruit, others)).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            best = keeper.save(epoch, model, optimizer, total)
            print(f"epoch {epoch}: loss {total / len(loader):.3f}, best {best}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
