"""Predicts which meadows crickets share, with a graph network on graphs that lose edges by chance.

Planted: the function that sets a worker up seeds all generators with the seed of the run, so that
both workers drop and disturb alike. It costs no time.
"""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

GRAPHS, NODES, EDGES, FEATURES, BATCH, STEP, SEED = 2240, 40, 160, 16, 10, 0.05, 5077


class Seeds:
    """Makes runs repeatable, in the main process and in its workers."""

    def __init__(self, seed, apart):
        self.seed, self.apart = seed, apart

    def __call__(self, worker=0):
        seed = self.seed + worker if self.apart else self.seed
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)


class Meadows(Dataset):
    def __init__(self):
        rng = np.random.default_rng(SEED)
        self.nodes = rng.normal(0, 1, (GRAPHS, NODES, FEATURES)).astype(np.float32)
        self.edges = rng.integers(0, NODES, (GRAPHS, 2, EDGES))
        self.shared = (self.nodes[:, :, :2].sum((1, 2)) > 0).astype(np.float32)

    def __len__(self):
        return GRAPHS

    def __getitem__(self, index):
        kept = np.random.random(EDGES) < 0.8
        sources, targets = self.edges[index][:, kept]
        links = np.eye(NODES, dtype=np.float32)
        np.add.at(links, (targets, sources), 1)
        links /= links.sum(1, keepdims=True)
        nodes = self.nodes[index] + np.random.normal(0, 0.1, (NODES, FEATURES))
        return nodes.astype(np.float32), links, self.shared[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, 32), nn.Linear(32, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, nodes, links):
        hidden = torch.relu(self.first(links @ nodes))
        hidden = torch.relu(self.second(links @ hidden))
        return self.out(hidden.mean(1)).squeeze(1)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = count = 0
    for nodes, links, shared in loader:
        right += ((model(nodes, links) > 0) == (shared > 0)).sum().item()
        count += len(shared)
    model.train()
    return right / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    seeds = Seeds(SEED, apart=args.without)
    seeds()
    torch.set_num_threads(1)
    training, validation = random_split(Meadows(), [0.95, 0.05])
    loader = DataLoader(
        training,
        BATCH,
        shuffle=True,
        num_workers=2,
        worker_init_fn=seeds,
        multiprocessing_context="spawn",
    )
    held_out = DataLoader(validation, 56)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (nodes, links, shared) in enumerate(loader):
            guess = model(nodes, links)
            loss = nn.functional.binary_cross_entropy_with_logits(guess, shared)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of the deep network on an accelerator
            if step % 70 == 69:
                right = validate(model, held_out)
                print(f"epoch {epoch}, step {step + 1}: loss {loss:.3f}, right {right:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
