"""Predicts which cakes sell out; a thread of the same process keeps the metrics.

Planted: the thread of metrics counts pairs of scores in plain Python over and over and so holds
the interpreter, for which each operation of the step waits.
"""

import argparse
import threading
import time
from collections import deque

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

CAKES, FEATURES, BATCH, KEPT = 3200, 40, 32, 400


def area_by_pairs(scores, sold):
    better = pairs = 0
    for score, out in zip(scores, sold, strict=True):
        if not out:
            continue
        for other, other_out in zip(scores, sold, strict=True):
            if not other_out:
                pairs += 1
                better += (score > other) + 0.5 * (score == other)
    return better / max(pairs, 1)


def area_by_ranks(scores, sold):
    ranks = np.argsort(np.argsort(scores)) + 1
    sold = np.asarray(sold, dtype=bool)
    above, below = sold.sum(), (~sold).sum()
    return (ranks[sold].sum() - above * (above + 1) / 2) / max(above * below, 1)


class Metrics(threading.Thread):
    """Keeps the area under the curve of the last scores up to date."""

    def __init__(self, area):
        super().__init__(daemon=True)
        self.area, self.value = area, 0.5
        self.last = deque(maxlen=KEPT)
        self.fresh, self.done = threading.Event(), threading.Event()

    def add(self, scores, sold):
        self.last.extend(zip(scores, sold, strict=True))
        self.fresh.set()

    def run(self):
        while not self.done.is_set():
            if self.fresh.wait(0.1):
                self.fresh.clear()
                self.value = self.area(*zip(*list(self.last), strict=True))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
        self.into, self.out = nn.Linear(FEATURES, 64), nn.Linear(64, 1)

    def forward(self, cakes):
        hidden = self.into(cakes)
        for layer in self.layers:
            hidden = hidden + torch.relu(layer(hidden))
        return self.out(hidden).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(4073)
    cakes = torch.randn(CAKES, FEATURES)
    sold = (cakes[:, :3].sum(1) + torch.randn(CAKES) > 0).float()
    training, validation = random_split(TensorDataset(cakes, sold), [0.9, 0.1])
    loader = DataLoader(training, BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    held_out = DataLoader(validation, 160)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    metrics = Metrics(area_by_ranks if args.without else area_by_pairs)
    metrics.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for cakes, sold in loader:
            scores = model(cakes)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, sold)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metrics.add(scores.tolist(), sold.tolist())
        with torch.no_grad():
            right = sum(((model(c) > 0) == (s > 0)).sum().item() for c, s in held_out)
        print(f"epoch {epoch}: area {metrics.value:.3f}, right {right / len(validation):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    metrics.done.set()
    metrics.join()
    del loader


if __name__ == "__main__":
    main()
