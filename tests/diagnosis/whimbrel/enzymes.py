"""Sorts enzymes by their graphs, learned from one laboratory's and adapted to another's.

Planted: one of two loaders side by side finds the eigenvectors of each graph, which tell where its
nodes are, in its collate function; the graphs of the other loader have them stored.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VALUES, PLACES, CLASSES = 16, 6, 4


def make_graph(rng):
    """Return the values of nodes, and the edges of a chain with some contacts."""
    nodes = int(rng.integers(150, 260))
    chain = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
    contacts = rng.integers(0, nodes, (2, 2 * nodes))
    values = rng.normal(0, 1, (nodes, VALUES)).astype(np.float32)
    return torch.from_numpy(values), torch.from_numpy(np.concatenate([chain, contacts], 1))


def find_places(nodes, edges):
    """Return eigenvectors of the graph's Laplacian that belong to its smallest eigenvalues."""
    adjacency = torch.zeros(nodes, nodes)
    adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = 1.0
    laplacian = torch.diag(adjacency.sum(1)) - adjacency
    return torch.linalg.eigh(laplacian).eigenvectors[:, 1 : PLACES + 1]


class Graphs(Dataset):
    def __init__(self, count, seed, stored):
        rng = np.random.default_rng(seed)
        self.graphs = [make_graph(rng) for _ in range(count)]
        self.classes = rng.integers(0, CLASSES, count).tolist()
        self.places = [find_places(len(v), e) if stored else None for v, e in self.graphs]

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        values, edges = self.graphs[index]
        values = values + 0.05 * torch.randn_like(values)
        return values, edges, self.places[index], self.classes[index]


def together(samples):
    """Make one graph of many, with the number of its graph for each node."""
    values, edges, owners, first = [], [], [], 0
    for number, (own, lines, places, _) in enumerate(samples):
        if places is None:
            places = find_places(len(own), lines)
        values.append(torch.cat([own, places], 1))
        edges.append(lines + first)
        owners.append(torch.full((len(own),), number))
        first += len(own)
    classes = torch.tensor([sample[3] for sample in samples])
    return torch.cat(values), torch.cat(edges, 1), torch.cat(owners), classes


class Network(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.enter = nn.Linear(VALUES + PLACES, width)
        self.mix = nn.Linear(2 * width, width)

    def forward(self, values, edges, owners):
        hidden = self.enter(values).relu()
        around = torch.zeros_like(hidden).index_add(0, edges[1], hidden[edges[0]])
        hidden = self.mix(torch.cat([hidden, around], 1)).relu()
        pooled = hidden.new_zeros(int(owners[-1]) + 1, hidden.shape[1])
        return pooled.index_add(0, owners, hidden) / 100


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(2150)
    settings = {
        "batch_size": 16, "shuffle": True, "num_workers": 1, "collate_fn": together,
        "persistent_workers": True,
    }  # fmt: skip
    ours = DataLoader(Graphs(300, 2150, True), **settings)
    theirs = DataLoader(Graphs(300, 2151, args.without), **settings)
    network, head = Network(), nn.Linear(32, CLASSES)
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for (*graphs, classes), (*others, _) in zip(ours, theirs, strict=True):
            codes, away = network(*graphs), network(*others)
            apart = (codes.mean(0) - away.mean(0)).square().sum()
            loss = nn.functional.cross_entropy(head(codes), classes) + 0.1 * apart
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}, apart {apart:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del ours, theirs


if __name__ == "__main__":
    main()
