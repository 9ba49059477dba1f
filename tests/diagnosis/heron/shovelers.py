"""Predicts the weight of shovelers from measures of their bills, with workers that are spawned.

Planted: each epoch starts its two workers again, which import torch and this script first.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BIRDS, MEASURES = 1920, 24


class Bills(Dataset):
    """Measures of bills, with noise as of another observer."""

    def __init__(self, augment=True):
        rng = np.random.default_rng(101)
        self.measures = rng.standard_normal((BIRDS, MEASURES)).astype(np.float32)
        self.weights = self.measures[:, :4].sum(1) + 6
        self.augment = augment

    def __len__(self):
        return BIRDS

    def __getitem__(self, index):
        measures = self.measures[index]
        if self.augment:
            measures = measures + 0.05 * np.random.standard_normal(MEASURES).astype(np.float32)
        order = np.argsort(measures[4:]) + 4
        return np.concatenate([measures, measures[order]]), self.weights[index]


def build_model(size=384):
    return nn.Sequential(
        nn.Linear(2 * MEASURES - 4, size),
        nn.GELU(),
        nn.Linear(size, size),
        nn.GELU(),
        nn.Linear(size, 1),
    )


@torch.no_grad()
def error_of(model, bills):
    """Return the mean error of a hundred birds."""
    pairs = [bills[number] for number in range(100)]
    measures = torch.tensor(np.stack([measures for measures, _ in pairs]))
    weights = torch.tensor(np.stack([weight for _, weight in pairs]))
    return (model(measures).squeeze(1) - weights).abs().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(101)
    loader = DataLoader(
        Bills(),
        batch_size=32,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=args.without,
    )
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    calm = Bills(augment=False)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for measures, weights in loader:
            loss = nn.functional.huber_loss(model(measures).squeeze(1), weights)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}, error {error_of(model, calm):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
