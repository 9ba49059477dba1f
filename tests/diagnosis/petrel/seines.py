"""Groups fish in a seine by what lies near, with graphs that the collate function joins.

Planted: the collate function finds the neighbours of each fish with loops over all pairs.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NEAR, KINDS = 0.35, 3


class Hauls(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(293)
        sizes = rng.integers(40, 70, count)
        self.places = [rng.random((size, 3), dtype=np.float32) for size in sizes]

    def __len__(self):
        return len(self.places)

    def __getitem__(self, index):
        return torch.from_numpy(self.places[index]), index % KINDS


def pairs_in_loops(places):
    points = places.tolist()
    pairs = []
    for first, one in enumerate(points):
        for second, other in enumerate(points):
            distance = sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
            if first != second and distance < NEAR:
                pairs.append((first, second))
    return torch.tensor(pairs, dtype=torch.long).view(-1, 2)


def pairs_at_once(places):
    near = torch.cdist(places, places) < NEAR
    return near.fill_diagonal_(False).nonzero()


class JoinGraphs:
    def __init__(self, find_pairs):
        self.find_pairs = find_pairs

    def __call__(self, samples):
        edges, owner, start = [], [], 0
        for number, (places, _) in enumerate(samples):
            edges.append(self.find_pairs(places) + start)
            owner += [number] * len(places)
            start += len(places)
        places, kinds = zip(*samples, strict=True)
        return torch.cat(places), torch.cat(edges), torch.tensor(owner), torch.tensor(kinds)


class Graphs(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.first, self.second = nn.Linear(3, size), nn.Linear(2 * size, size)
        self.head = nn.Linear(size, KINDS)

    def forward(self, places, edges, owner, count):
        rows = self.first(places).relu()
        near = torch.zeros_like(rows).index_add(0, edges[:, 0], rows[edges[:, 1]])
        rows = self.second(torch.cat([rows, near], 1)).relu()
        return self.head(torch.zeros(count, rows.shape[1]).index_add(0, owner, rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(293)
    join = JoinGraphs(pairs_at_once if args.without else pairs_in_loops)
    loader = DataLoader(
        Hauls(1000), batch_size=16, shuffle=True, num_workers=2, collate_fn=join,
        persistent_workers=True,
    )  # fmt: skip
    model = Graphs()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for places, edges, owner, kinds in loader:
            loss = nn.functional.cross_entropy(model(places, edges, owner, len(kinds)), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
