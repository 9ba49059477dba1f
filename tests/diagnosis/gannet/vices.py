"""Learns which vices will slip, and shows with each step how well it ranks them.

Planted: the base class of the metrics works its value out from all scores since the epoch began,
each time that scores are added.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

FIELDS = 40


class Metric:
    """A value of all scores and labels of an epoch; it is asked for after each update."""

    full_update = True

    def __init__(self):
        self.scores, self.labels, self.value = [], [], float("nan")

    def compute(self, scores, labels):
        raise NotImplementedError

    def update(self, scores, labels):
        self.scores.append(scores.detach())
        self.labels.append(labels)
        if self.full_update:
            self.value = self.compute(torch.cat(self.scores), torch.cat(self.labels))

    def reset(self):
        if not self.full_update:
            self.value = self.compute(torch.cat(self.scores), torch.cat(self.labels))
        self.scores, self.labels = [], []
        return self.value


class RankedRight(Metric):
    """The share of pairs that are in the right order (the area under the ROC curve)."""

    def compute(self, scores, labels):
        order = scores.argsort()
        ranks = torch.empty_like(scores)
        ranks[order] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
        slipped = int(labels.sum())
        most = slipped * (len(labels) - slipped)
        return float((ranks[labels == 1].sum() - slipped * (slipped + 1) / 2) / max(1, most))


class BestThreshold(Metric):
    """The score from which on a vice had best be taken for one that slips."""

    def compute(self, scores, labels):
        tried = torch.linspace(float(scores.min()), float(scores.max()), 40)
        right = [((scores > one) == (labels == 1)).float().mean() for one in tried]
        return float(tried[int(torch.stack(right).argmax())])


def run(model, loader, optimizer=None):
    metrics = [RankedRight(), BestThreshold()]
    begin = time.perf_counter()
    with torch.set_grad_enabled(optimizer is not None):
        for fields, slips in loader:
            scores = model(fields).squeeze(1)
            if optimizer is not None:
                loss = nn.functional.binary_cross_entropy_with_logits(scores, slips)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            for metric in metrics:
                metric.update(scores, slips)
    values = [metric.reset() for metric in metrics]
    what = "validation" if optimizer is None else "training"
    print(f"seconds {time.perf_counter() - begin:.3f} {what}, {values[0]:.3f} at {values[1]:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(541)
    Metric.full_update = not args.without
    fields = torch.rand(20_000, FIELDS)
    slips = (fields[:, :5].sum(1) + 0.3 * torch.randn(20_000) > 3).float()
    train, rest = random_split(TensorDataset(fields, slips), [16_000, 4_000])
    training = DataLoader(train, batch_size=32, shuffle=True)
    validation = DataLoader(rest, batch_size=32)
    model = nn.Sequential(
        nn.Linear(FIELDS, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 128), nn.ReLU(),
        nn.Linear(128, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(args.epochs):
        run(model.train(), training, optimizer)
        run(model.eval(), validation)


if __name__ == "__main__":
    main()
