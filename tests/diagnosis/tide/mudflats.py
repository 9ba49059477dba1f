"""Metric learning of shells: a sampler draws pairs that were not drawn in this epoch before."""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Shells(Dataset):
    def __init__(self, count=60000, size=96, seed=5):
        rng = np.random.default_rng(seed)
        self.kinds = rng.integers(0, 40, count)
        self.features = rng.normal(size=(count, size)).astype(np.float32)
        self.features += self.kinds[:, None] * 0.02

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        row = self.features[index]
        row = row + np.random.normal(scale=0.01, size=row.shape).astype(np.float32)
        return torch.from_numpy(row), int(self.kinds[index])


class FreshSampler(Sampler):
    """Draws indices by chance, each at most once an epoch, until `count` were drawn."""

    def __init__(self, data, count, quick=False, seed=0):
        self.size, self.count = len(data), count
        self.quick, self.chance = quick, random.Random(seed)

    def __len__(self):
        return self.count

    def __iter__(self):
        drawn = set() if self.quick else []
        remember = drawn.add if self.quick else drawn.append
        while len(drawn) < self.count:
            index = self.chance.randrange(self.size)
            if index in drawn:
                continue
            remember(index)
            yield index


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(96, 256), nn.ReLU(), nn.LayerNorm(256), nn.Linear(256, 32)
        )

    def forward(self, rows):
        return nn.functional.normalize(self.layers(rows), dim=1)


def contrastive_loss(codes, kinds, temperature=0.1):
    likeness = codes @ codes.T / temperature
    likeness.fill_diagonal_(-1e4)
    same = (kinds[:, None] == kinds[None]).float().fill_diagonal_(0)
    rest = likeness - likeness.logsumexp(1, keepdim=True)
    return -(rest * same).sum() / same.sum().clamp_min(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    data = Shells()
    sampler = FreshSampler(data, count=12800, quick=args.without)
    loader = DataLoader(
        data, batch_size=128, sampler=sampler, num_workers=2, persistent_workers=True
    )
    model = Embedder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = []
        for rows, kinds in loader:
            loss = contrastive_loss(model(rows), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
