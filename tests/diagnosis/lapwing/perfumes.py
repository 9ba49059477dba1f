"""Predicts how perfumes smell from the graphs of their molecules, with dense adjacency.

Planted: the collate function fills all graphs up to the largest one of the data set, of 576 atoms,
though nearly all have some thirty, and prepares the large matrices.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MOLECULES, FEATURES, NOTES, BATCH, STEP = 960, 16, 10, 32, 0.03


class Molecules(Dataset):
    def __init__(self):
        rng = np.random.default_rng(5101)
        self.sizes = rng.integers(12, 48, MOLECULES)
        self.sizes[rng.choice(MOLECULES, 3, replace=False)] = (210, 320, 576)

    def __len__(self):
        return MOLECULES

    def __getitem__(self, index):
        size = int(self.sizes[index])
        source = torch.Generator().manual_seed(index)
        atoms = torch.randn(size, FEATURES, generator=source)
        chain = torch.arange(size - 1)
        rings = torch.randint(size, (2, size // 4), generator=source)
        bonds = torch.cat([torch.stack([chain, chain + 1]), rings], 1)
        return atoms, bonds, index % NOTES


class Graphs:
    """Makes a batch with normalised adjacency, as graph convolutions take it."""

    def __init__(self, most=None):
        self.most = most

    def __call__(self, molecules):
        atoms, bonds, notes = zip(*molecules, strict=True)
        most = self.most or max(len(part) for part in atoms)
        features = torch.zeros(len(atoms), most, FEATURES)
        adjacency = torch.zeros(len(atoms), most, most)
        for place, (part, (begin, end)) in enumerate(zip(atoms, bonds, strict=True)):
            features[place, : len(part)] = part
            adjacency[place, begin, end] = adjacency[place, end, begin] = 1.0
        adjacency += torch.eye(most)
        scale = adjacency.sum(2).rsqrt()
        adjacency = scale[:, :, None] * adjacency * scale[:, None, :]
        hops = torch.bmm(adjacency, adjacency)
        return features, (adjacency + hops) / 2, torch.tensor(notes)


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(FEATURES, 32), nn.Linear(32, NOTES)

    def forward(self, features, adjacency):
        hidden = torch.relu(self.into(features))
        return self.out((adjacency[:, :40] @ hidden).amax(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5101)
    torch.set_num_threads(1)
    molecules = Molecules()
    graphs = Graphs() if args.without else Graphs(int(molecules.sizes.max()))
    loader = DataLoader(
        molecules, BATCH, shuffle=True, num_workers=2, persistent_workers=True, collate_fn=graphs
    )
    model = GraphNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for features, adjacency, notes in loader:
            loss = nn.functional.cross_entropy(model(features, adjacency), notes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # deeper layers, on an accelerator
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
