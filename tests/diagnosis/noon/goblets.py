"""Goblets from digs, by their outlines; now and then the codes of all that was seen are sorted."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EVERY, MUSEUM_S = 12, 0.002


class Goblets(Dataset):
    def __init__(self, count=1200):
        rng = np.random.default_rng(16)
        self.count = count
        self.outlines = rng.normal(size=(30, 2, 256)).cumsum(2).astype(np.float32)

    def __len__(self):
        return self.count

    def fetch_outline(self, number):
        """The museum answers a request in some milliseconds."""
        time.sleep(MUSEUM_S)
        return self.outlines[number % 30]

    def __getitem__(self, index):
        outline = self.fetch_outline(index)
        outline = np.roll(outline, index % 256, 1)
        outline = (outline - outline.mean(1, keepdims=True)) / outline.std()
        return torch.from_numpy(outline), index % 5


def cluster(codes, rounds):
    """k-means of codes (rows, size), to hold as targets for the next batches."""
    centres = codes[:160].clone()
    for _ in range(rounds):
        nearest = torch.cdist(codes, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, codes)
        centres = sums / torch.bincount(nearest, minlength=160).clamp_min(1)[:, None]
    return centres


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(16)
    loader = DataLoader(
        Goblets(),
        batch_size=10,
        shuffle=True,
        num_workers=1,
        prefetch_factor=16 if args.without else 1,
    )
    encoder = nn.Sequential(
        nn.Conv1d(2, 16, 7, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten()
    )
    head = nn.Linear(128, 5)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
    bank, step = torch.randn(8000, 128), 0
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for outlines, cultures in loader:
            codes = encoder(outlines)
            loss = nn.functional.cross_entropy(head(codes), cultures)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            first = step * 10 % 8000
            bank[first : first + len(codes)] = codes.detach()
            step, total = step + 1, total + loss.item()
            if step % EVERY == 0:
                cluster(bank, rounds=20)
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
