"""Learns the fields of preprints from who cites whom, by what is near each in the graph.

Planted: the batch sampler walks through the graph from each preprint to find what is near, step by
step in the main process, before it gives the batch to a worker.
"""

import argparse
import time
from collections import Counter

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

PAPERS, VALUES, FIELDS, NEAR, WALKS, LENGTH = 12_000, 64, 8, 6, 24, 3


def make_citations():
    """Return the neighbours of each preprint; most are of its own field."""
    rng = np.random.default_rng(2170)
    fields = np.arange(PAPERS) % FIELDS
    far = rng.integers(0, PAPERS, (PAPERS, 12))
    own = far - far % FIELDS + fields[:, None]
    return fields, np.where(rng.random(far.shape) < 0.7, own, far) % PAPERS


class Walker(Sampler):
    """Batches of preprints, each with those where short walks from it come by most often."""

    def __init__(self, neighbours, size):
        self.neighbours, self.size = neighbours, size
        self.rng = np.random.default_rng(2171)

    def __len__(self):
        return PAPERS // self.size // 4

    def visits(self, root):
        seen = Counter()
        for _ in range(WALKS):
            at = root
            for _ in range(LENGTH):
                at = int(self.rng.choice(self.neighbours[at]))
                seen[at] += 1
        return [paper for paper, _ in seen.most_common(NEAR)]

    def near(self, roots):
        return [(int(root), self.visits(root)) for root in roots]

    def __iter__(self):
        order = self.rng.permutation(PAPERS)
        for number in range(len(self)):
            yield self.near(order[number * self.size : (number + 1) * self.size])


class TableWalker(Walker):
    """The same, from a table of what is near that was made once for all preprints."""

    def __init__(self, neighbours, size):
        super().__init__(neighbours, size)
        at, steps = np.repeat(np.arange(PAPERS)[:, None], WALKS, 1), []
        for _ in range(LENGTH):
            at = neighbours[at, self.rng.integers(0, neighbours.shape[1], at.shape)]
            steps.append(at)
        self.table = np.concatenate(steps, 1)[:, -NEAR:].tolist()

    def visits(self, root):
        return self.table[root]


class Papers(Dataset):
    def __init__(self, fields):
        rng = np.random.default_rng(2172)
        values = rng.normal(0, 2, (PAPERS, VALUES)) + np.eye(VALUES)[fields]
        self.values = torch.from_numpy(values.astype(np.float32))
        self.fields = torch.from_numpy(fields)

    def __len__(self):
        return PAPERS

    def __getitem__(self, question):
        root, near = question
        return self.values[root], self.values[near].mean(0), self.fields[root]


def make_model():
    return nn.Sequential(
        nn.Linear(2 * VALUES, 192), nn.LayerNorm(192), nn.GELU(), nn.Dropout(0.2),
        nn.Linear(192, 192), nn.LayerNorm(192), nn.GELU(), nn.Linear(192, FIELDS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(2170)
    fields, neighbours = make_citations()
    walker = (TableWalker if args.without else Walker)(neighbours, 64)
    loader = DataLoader(
        Papers(fields), batch_sampler=walker, num_workers=2, persistent_workers=True
    )
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = total = 0
        for own, near, truths in loader:
            scores = model(torch.cat([own, near], 1))
            loss = nn.functional.cross_entropy(scores, truths)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right, total = right + int((scores.argmax(1) == truths).sum()), total + len(truths)
        print(f"epoch {epoch}: loss {loss:.3f}, right {right / total:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
