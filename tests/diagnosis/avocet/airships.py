"""Steers airships: learns the rudder from the wind, from shards in a store that answers slowly.

Planted: workers share the shards out by claiming them with lock files, and the first one that
comes claims all of them at once, as the claims are made in a list. The other three have nothing.
"""

import argparse
import os
import pickle
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SHARDS, FLIGHTS, VALUES, LATENCY = 20, 32, 48, 0.005


def write_shards(folder):
    rng = np.random.default_rng(3079)
    for number in range(SHARDS):
        winds = rng.normal(0, 1, (FLIGHTS, VALUES)).astype(np.float32)
        flights = [(wind, float(np.tanh(wind[:4].sum()))) for wind in winds]
        Path(folder, f"shard-{number:02}.pickle").write_bytes(pickle.dumps(flights))


class Store:
    """A store of objects: each flight is asked for, and comes after a while."""

    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("shard-*.pickle"))

    def flights(self, path):
        for flight in pickle.loads(path.read_bytes()):
            time.sleep(LATENCY)
            yield flight


class Claims:
    """Lock files, of which one process only can make each."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def claim(self, name):
        try:
            os.close(os.open(self.folder / f"{name}.lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True


class Flights(IterableDataset):
    def __init__(self, store, claims, at_once):
        self.store, self.claims, self.at_once = store, claims, at_once
        self.epoch = 0

    def mine(self):
        free = (path for path in self.store.paths if self.claims.claim(self.name(path)))
        return list(free) if self.at_once else free

    def name(self, path):
        return f"epoch-{self.epoch}-{path.stem}"

    def __iter__(self):
        for path in self.mine():
            for wind, rudder in self.store.flights(path):
                gust = 0.05 * torch.randn(VALUES)
                yield torch.from_numpy(wind) + gust, rudder
        self.epoch += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(3079)
    model = nn.Sequential(
        nn.Linear(VALUES, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder)
        data = Flights(Store(folder), Claims(folder), at_once=not args.without)
        loader = DataLoader(data, batch_size=16, num_workers=4, persistent_workers=True)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for winds, rudders in loader:
                loss = nn.functional.mse_loss(model(winds).squeeze(1), rudders.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
