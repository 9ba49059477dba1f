"""Follows gazelles by the sensors on their collars: three hundred columns, one table per batch.

Planted: a batch is a dictionary with a tensor for each of 300 columns, and each tensor goes from
the worker to the loop in shared memory of its own, with a descriptor of its own.
"""

import argparse
import time

import numpy as np
import torch
from torch import multiprocessing, nn
from torch.utils.data import DataLoader, Dataset

COLUMNS, GAZELLES, BATCH = 300, 640, 32


class Gazelles(Dataset):
    def __init__(self):
        rng = np.random.default_rng(4021)
        self.names = [f"sensor_{number:03}" for number in range(COLUMNS)]
        self.values = rng.normal(0, 1, (GAZELLES, COLUMNS)).astype(np.float32)
        self.speed = np.tanh(self.values[:, :6].sum(1))

    def __len__(self):
        return GAZELLES

    def __getitem__(self, index):
        return self.values[index], self.speed[index]


class Table:
    """Makes a batch, with a column by name or all columns beside each other."""

    def __init__(self, names, by_name):
        self.names, self.by_name = names, by_name

    def __call__(self, samples):
        values, speeds = zip(*samples, strict=True)
        values = torch.from_numpy(np.stack(values))
        if self.by_name:
            values = {name: values[:, i].clone() for i, name in enumerate(self.names)}
        return values, torch.tensor(np.array(speeds))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(4021)
    multiprocessing.set_sharing_strategy("file_descriptor")
    gazelles = Gazelles()
    model = nn.Sequential(nn.Linear(COLUMNS, 256), nn.GELU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(
        gazelles,
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        collate_fn=Table(gazelles.names, by_name=not args.without),
    )
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for columns, speeds in loader:
            if isinstance(columns, dict):
                columns = torch.stack([columns[name] for name in gazelles.names], 1)
            loss = nn.functional.mse_loss(model(columns).squeeze(1), speeds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
