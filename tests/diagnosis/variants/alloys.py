"""Predict the strength of alloys from graphs of their atoms, padded to dense batches."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MOST_ATOMS = 48


class Alloys(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(9)
        self.graphs = []
        for _ in range(count):
            atoms = int(rng.integers(20, MOST_ATOMS))
            bonds = rng.integers(0, atoms, (2, atoms * 4))
            self.graphs.append((rng.normal(size=(atoms, 16)), bonds, float(rng.random())))

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        atoms, bonds, strength = self.graphs[index]
        return torch.from_numpy(atoms).float(), torch.from_numpy(bonds), strength


def dense_by_bond(samples):
    atoms = torch.zeros(len(samples), MOST_ATOMS, 16)
    bonded = torch.zeros(len(samples), MOST_ATOMS, MOST_ATOMS)
    for number, (features, bonds, _) in enumerate(samples):
        atoms[number, : len(features)] = features
        for k in range(bonds.shape[1]):
            bonded[number, bonds[0, k], bonds[1, k]] = 1.0
            bonded[number, bonds[1, k], bonds[0, k]] = 1.0
    return atoms, bonded, torch.tensor([strength for *_, strength in samples])


def dense(samples):
    atoms = torch.zeros(len(samples), MOST_ATOMS, 16)
    bonded = torch.zeros(len(samples), MOST_ATOMS, MOST_ATOMS)
    for number, (features, bonds, _) in enumerate(samples):
        atoms[number, : len(features)] = features
        bonded[number, bonds[0], bonds[1]] = 1.0
        bonded[number, bonds[1], bonds[0]] = 1.0
    return atoms, bonded, torch.tensor([strength for *_, strength in samples])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    loader = DataLoader(
        Alloys(800),
        batch_size=32,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=dense if args.without else dense_by_bond,
        persistent_workers=True,
    )
    first, second = nn.Linear(16, 32), nn.Linear(32, 1)
    begin = time.perf_counter()
    for _epoch in range(2):
        for atoms, bonded, strength in loader:
            states = torch.relu(first(bonded @ atoms))
            guess = second((bonded @ states).mean(1)).squeeze(1)
            nn.functional.mse_loss(guess, strength).backward()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
