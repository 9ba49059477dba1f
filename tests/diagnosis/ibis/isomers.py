"""Learns which isomers of a molecule are stable, from graphs with the distances of their atoms.

Planted: the function that starts a worker works out a table of fragments that is the same for all,
and workers are started anew for each epoch.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

ISOMERS, ATOMS, FRAGMENTS, BATCH, STEP = 640, 18, 250_000, 16, 0.035


def draw_graph(rng):
    bonds = np.full((ATOMS, ATOMS), 99.0)
    np.fill_diagonal(bonds, 0)
    for atom in range(1, ATOMS):
        other = rng.integers(max(0, atom - 3), atom)
        bonds[atom, other] = bonds[other, atom] = 1
    return bonds


def work_out_fragments():
    """For each fragment of three rings, a key and how common it is."""
    table = {}
    for number in range(FRAGMENTS):
        value = number
        for _ in range(30):
            value = (value * 1_103_515_245 + 12_345) % 2_147_483_648
        key = (value % 97, value // 97 % 89, value // 8633 % 83)
        table[key] = table.get(key, 0.0) + 1.0 / (1 + number % 13)
    return table


def start_worker(number):
    data = get_worker_info().dataset
    data.fragments = work_out_fragments()


class Isomers(Dataset):
    def __init__(self):
        rng = np.random.default_rng(937)
        self.graphs = [draw_graph(rng) for _ in range(ISOMERS)]
        self.stable = rng.random(ISOMERS, dtype=np.float32)
        self.fragments = None

    def __len__(self):
        return ISOMERS

    def __getitem__(self, index):
        distances = self.graphs[index].copy()
        for atom in range(ATOMS):  # Floyd and Warshall's
            distances = np.minimum(distances, distances[:, atom, None] + distances[None, atom])
        common = self.fragments.get((index % 97, index % 89, index % 83), 0.0)
        features = np.append(np.histogram(distances, bins=15, range=(0, 15))[0] / ATOMS, common)
        return torch.from_numpy(features.astype(np.float32)), self.stable[index]


def get_loader(data, anew):
    if anew:
        return DataLoader(data, BATCH, shuffle=True, num_workers=2, worker_init_fn=start_worker)
    data.fragments = work_out_fragments()
    return DataLoader(data, BATCH, shuffle=True, num_workers=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(937)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(16, 48), nn.SiLU(), nn.Linear(48, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    loader = get_loader(Isomers(), anew=not args.without)
    for epoch in range(args.epochs):
        for features, stable in loader:
            loss = nn.functional.mse_loss(model(features).squeeze(1), stable)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # message passing, on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
