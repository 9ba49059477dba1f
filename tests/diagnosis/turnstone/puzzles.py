"""Sorts pieces of puzzles by motif, and tries the model out on each box after every few steps.

Planted: a function that tries one box out came from a script that did so once, at the end; it makes
a loader with two workers, and is called for each of eight boxes several times an epoch.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BOXES, SIDE, EVERY = 8, 20, 50


class Pieces(Dataset):
    def __init__(self, box, count):
        rng = np.random.default_rng(1163 + box)
        self.motifs = rng.integers(0, 6, count)
        self.pieces = rng.random((count, SIDE, SIDE), dtype=np.float32)
        self.pieces += self.motifs[:, None, None] * 0.1

    def __len__(self):
        return len(self.motifs)

    def __getitem__(self, index):
        piece = torch.from_numpy(np.rot90(self.pieces[index], index % 4).copy())
        return (piece - piece.median()) / 2 + piece.mean(), int(self.motifs[index])


class Trials:
    """Tells the share of right motifs in each box."""

    def __init__(self, workers=2):
        self.boxes = [Pieces(100 + box, 40) for box in range(BOXES)]
        self.workers = workers

    def loader(self, box):
        return DataLoader(self.boxes[box], batch_size=20, num_workers=self.workers)

    def of_box(self, model, box):
        right = 0
        for pieces, motifs in self.loader(box):
            right += (model(pieces).argmax(1) == motifs).sum().item()
        return right / len(self.boxes[box])

    def __call__(self, model):
        with torch.no_grad():
            return [self.of_box(model, box) for box in range(BOXES)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1163)
    trials = Trials(workers=0) if args.without else Trials()
    loader = DataLoader(
        Pieces(0, 2000), batch_size=20, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 200), nn.ReLU(), nn.Linear(200, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin, step = time.perf_counter(), 0
    for epoch in range(args.epochs):
        for pieces, motifs in loader:
            loss = nn.functional.cross_entropy(model(pieces), motifs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % EVERY == 0:
                shares = trials(model)
        print(f"epoch {epoch}: loss {loss:.3f}, worst box {min(shares):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
