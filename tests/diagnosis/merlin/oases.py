"""Learns what oases have in common, in batches of oases that are hard to tell apart.

Planted: the sampler compares each anchor with all oases and sorts them for each batch, in the main
process, though what it sorts does not change; the workers wait to be asked.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

OASES, WIDTH, ANCHORS, EACH, BATCHES, STORE, STEP = 12000, 48, 12, 4, 60, 0.012, 0.02


class Oases(Dataset):
    """Takes the numbers of a batch and returns the batch."""

    def __init__(self):
        rng = np.random.default_rng(71)
        self.features = rng.normal(0, 1, (OASES, WIDTH)).astype(np.float32)
        self.rain = np.abs(self.features[:, :6]).mean(1)

    def __len__(self):
        return OASES

    def __getitem__(self, numbers):
        time.sleep(STORE)  # the store of measurements
        features = self.features[numbers]
        features = (features - features.mean(0)) / (features.std(0) + 1e-3)
        features += np.random.normal(0, 0.05, features.shape).astype(np.float32)
        return torch.from_numpy(features), torch.from_numpy(self.rain[numbers])


class Neighbourhoods(Sampler):
    """Anchors at random, and those that are most like them."""

    def __init__(self, features, batches, once):
        self.unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        self.batches = batches
        self.rng = np.random.default_rng(73)
        self.pool = self.rng.permutation(len(features))[:160]
        self.known = {}
        if once:
            self.known = {anchor: self.near(anchor) for anchor in self.pool}

    def __len__(self):
        return self.batches

    def near(self, anchor):
        alike = self.unit @ self.unit[anchor]
        return np.argsort(-alike, kind="stable")[:EACH]

    def __iter__(self):
        for _ in range(self.batches):
            anchors = self.rng.choice(self.pool, ANCHORS, replace=False)
            rows = [self.known[one] if one in self.known else self.near(one) for one in anchors]
            yield np.concatenate(rows)


def contrast(codes, rain):
    codes = nn.functional.normalize(codes, dim=1)
    apart = (rain[:, None] - rain[None]).abs()
    return ((codes @ codes.t()) * apart).mean() + nn.functional.mse_loss(codes[:, 0], rain)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(71)
    torch.set_num_threads(1)
    data = Oases()
    sampler = Neighbourhoods(data.features, BATCHES, once=args.without)
    loader = DataLoader(
        data, batch_size=None, sampler=sampler, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for features, rain in loader:
            loss = contrast(model(features), rain)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a larger model on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
