"""Predicts how far bridges bend, as graphs of joints and beams.

Planted: the collate function puts the graphs of a batch into one matrix of all joints by all
joints, to read the beams from it.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 40


class Bridges(Dataset):
    """Trusses: two rows of joints, with beams along, across and between them."""

    def __init__(self, count):
        rng = np.random.default_rng(773)
        self.lengths = rng.integers(24, 48, count)
        self.seeds = rng.integers(0, 2**31, count)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        length = int(self.lengths[index])
        low = torch.arange(length)
        pairs = [(low[:-1], low[1:]), (low[:-1] + length, low[1:] + length)]
        pairs += [(low, low + length), (low[:-1], low[1:] + length)]
        beams = torch.cat([torch.stack(pair) for pair in pairs], 1)
        generator = torch.Generator().manual_seed(int(self.seeds[index]))
        joints = torch.rand(2 * length, 6, generator=generator)
        return joints, beams, joints[:, 0].sum() / length


class Together:
    """Makes one graph of several, whose joints are numbered one after another."""

    def __init__(self, counted):
        self.counted = counted

    def from_matrix(self, graphs):
        blocks = []
        for joints, beams, _ in graphs:
            block = torch.zeros(len(joints), len(joints))
            block[beams[0], beams[1]] = 1
            blocks.append(block)
        return torch.block_diag(*blocks).nonzero().T.contiguous()

    def from_counts(self, graphs):
        first, shifted = 0, []
        for joints, beams, _ in graphs:
            shifted.append(beams + first)
            first += len(joints)
        return torch.cat(shifted, 1)

    def __call__(self, graphs):
        beams = self.from_counts(graphs) if self.counted else self.from_matrix(graphs)
        owner = torch.cat([torch.full((len(graph[0]),), n) for n, graph in enumerate(graphs)])
        return (
            torch.cat([graph[0] for graph in graphs]),
            beams,
            owner,
            torch.stack([graph[2] for graph in graphs]),
        )


class Bending(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 64), nn.Linear(64, 64)
        self.head = nn.Linear(64, 1)

    def forward(self, joints, beams, owner):
        state = self.first(joints).relu()
        for _ in range(2):
            gathered = torch.zeros_like(state).index_add_(0, beams[1], state[beams[0]])
            state = self.second(state + gathered).relu()
        whole = torch.zeros(BATCH, 64).index_add_(0, owner, state)
        return self.head(whole).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(773)
    loader = DataLoader(
        Bridges(4000), batch_size=BATCH, shuffle=True, num_workers=1, drop_last=True,
        collate_fn=Together(args.without), persistent_workers=True,
    )  # fmt: skip
    model = Bending()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for joints, beams, owner, bent in loader:
            loss = nn.functional.mse_loss(model(joints, beams, owner), bent)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
