"""Finds sick violets by measurements of their leaves, and shows how good the ranking is so far.

Planted: calling the metric with a batch adds it, and then computes the value of all batches so
far, anew in each step.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VALUES = 40


class Metric:
    """Keeps what it is given; a call adds a batch and returns the value so far."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.scores, self.truths = [], []

    def update(self, scores, truths):
        self.scores.append(scores.detach())
        self.truths.append(truths)

    def __call__(self, scores, truths):
        self.update(scores, truths)
        return self.compute()


class AveragePrecision(Metric):
    def compute(self):
        scores, truths = torch.cat(self.scores), torch.cat(self.truths)
        ranked = truths[scores.argsort(descending=True, stable=True)].float()
        precision = ranked.cumsum(0) / torch.arange(1, len(ranked) + 1)
        return (precision * ranked).sum() / ranked.sum().clamp(min=1)


class Violets(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(1051)
        self.values = torch.from_numpy(rng.normal(0, 1, (count, VALUES)).astype(np.float32))
        self.sick = (self.values[:, :5].sum(1) + torch.randn(count) > 3).long()

    def __len__(self):
        return len(self.sick)

    def __getitems__(self, indices):
        values = self.values[indices]
        return values + 0.02 * torch.randn_like(values), self.sick[indices]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1051)
    loader = DataLoader(
        Violets(60_000), batch_size=128, shuffle=True, num_workers=1, persistent_workers=True,
        collate_fn=tuple,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Linear(VALUES, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 96), nn.GELU(),
        nn.Linear(96, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    metric = AveragePrecision()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        metric.reset()
        for values, sick in loader:
            scores = model(values).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, sick.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if args.without:
                metric.update(scores, sick)
            else:
                precision = metric(scores, sick)
        if args.without:
            precision = metric.compute()
        print(f"epoch {epoch}: loss {loss:.3f}, average precision {precision:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
