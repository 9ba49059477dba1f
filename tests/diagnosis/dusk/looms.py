"""Patterns of woven cloth, whose features are whitened sample by sample."""

import argparse
import os
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 160
VARIABLE = "OPENBLAS_NUM_THREADS"


def whiten(features):
    """`features`, with the unit matrix as their covariance."""
    features = features - features.mean(1, keepdims=True)
    covariance = features @ features.T / features.shape[1] + 1e-3 * np.eye(len(features))
    values, vectors = np.linalg.eigh(covariance)
    return vectors @ ((vectors / np.sqrt(values)).T @ features)


class Looms(Dataset):
    def __init__(self, count=360):
        rng = np.random.default_rng(43)
        self.mixing = rng.normal(size=(FEATURES, FEATURES))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        features = self.mixing @ rng.normal(size=(FEATURES, 320))
        cloth = torch.from_numpy(whiten(features)).float()
        return cloth, cloth[:4].abs().mean(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    if args.without and VARIABLE not in os.environ:  # it is read when numpy is imported
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, VARIABLE: "1"})
    torch.set_num_threads(1)
    torch.manual_seed(43)
    loader = DataLoader(Looms(), batch_size=8, shuffle=True, num_workers=3)
    model = nn.Sequential(
        nn.Conv1d(FEATURES, 32, 5),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(128, 4),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for cloths, means in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(cloths), means)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
