"""Learns who opens the envelopes of a mailing, with features of people from a feature store."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PEOPLE, TRAIN, VALID, WIDTH, BATCH = 2000, 320, 640, 24, 32


class FeatureStore:
    """A client of a store that answers after a few milliseconds."""

    def __init__(self):
        self.features = np.random.default_rng(113).normal(0, 1, (PEOPLE, WIDTH))

    def get(self, person):
        time.sleep(0.008)
        return self.features[person].astype(np.float32)


class Mailings(Dataset):
    def __init__(self, store, count, seed):
        rng = np.random.default_rng(seed)
        self.store = store
        self.people = rng.integers(0, PEOPLE, count)
        self.opened = (store.features[self.people, 0] > rng.normal(0, 1, count)).astype(np.float32)

    def __len__(self):
        return len(self.people)

    def __getitem__(self, index):
        features = self.store.get(self.people[index])
        return torch.from_numpy(features), self.opened[index]


def loss_of(model, features, opened):
    return nn.functional.binary_cross_entropy_with_logits(model(features).squeeze(1), opened)


def evaluate(model, loader):
    total = 0.0
    with torch.no_grad():
        for features, opened in loader:
            total += loss_of(model, features, opened).item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(127)
    torch.set_num_threads(1)
    workers = {"num_workers": 4, "persistent_workers": True}
    store = FeatureStore()
    train = DataLoader(Mailings(store, TRAIN, 127), batch_size=BATCH, shuffle=True, **workers)
    valid = DataLoader(
        Mailings(store, VALID, 131), batch_size=BATCH, **(workers if args.without else {})
    )
    model = nn.Sequential(nn.Linear(WIDTH, 48), nn.ReLU(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for features, opened in train:
            loss = loss_of(model, features, opened)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, validation {evaluate(model, valid):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
