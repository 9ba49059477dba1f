"""Learns the grain of wood that planes have cut; workers keep to cores of their own.

Planted: the function that sets a worker up counts two hardware threads to a core, which these cores
have not, so that all three workers are bound to the same of two cores.
"""

import argparse
import os
import time

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, WOODS = 96, 6
THREADS_OF_CORE = 2


def bind(worker):
    """Bind a worker to the first hardware thread of a core."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {cores[worker * THREADS_OF_CORE % len(cores)]})


class Grain(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(467)
        self.boards = rng.integers(0, 255, (30, SIDE, SIDE), np.uint8)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        board = Image.fromarray(self.boards[index % 30])
        board = board.resize((2 * SIDE, 2 * SIDE), Image.Resampling.BICUBIC).rotate(index % 11)
        board = ImageOps.equalize(ImageOps.autocontrast(board)).resize((SIDE, SIDE))
        lines = np.abs(np.fft.rfft(np.asarray(board, np.float32), axis=1))
        return torch.from_numpy(np.log1p(lines).astype(np.float32)), index % WOODS


class Woods(nn.Module):
    def __init__(self, size=48):
        super().__init__()
        self.lines = nn.Linear(SIDE // 2 + 1, size)
        self.head = nn.Linear(size, WOODS)

    def forward(self, lines):
        return self.head(torch.relu(self.lines(lines)).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(467)
    loader = DataLoader(
        Grain(3000),
        batch_size=20,
        shuffle=True,
        num_workers=3,
        persistent_workers=True,
        worker_init_fn=None if args.without else bind,
    )
    model = Woods()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for lines, woods in loader:
            scores = model(lines)
            loss = nn.functional.cross_entropy(scores, woods)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == woods).sum().item()
        print(f"epoch {epoch}: {right} right, loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
