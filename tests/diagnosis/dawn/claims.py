"""Claims of an insurance: the area under the curve of all claims so far, after each step."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class RunningCurve:
    """Keeps all scores and computes the area under the curve over them."""

    def __init__(self):
        self.scores, self.truths = [], []

    def update(self, scores, truths):
        self.scores.extend(scores.tolist())
        self.truths.extend(truths.tolist())

    def compute(self):
        ranked = sorted(zip(self.scores, self.truths, strict=True))
        positives = sum(truth for _, truth in ranked)
        ranks = sum(rank for rank, (_, truth) in enumerate(ranked, 1) if truth)
        negatives = len(ranked) - positives
        return (ranks - positives * (positives + 1) / 2) / max(positives * negatives, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(8)
    rows = torch.randn(12_800, 48)
    frauds = (rows[:, :4].sum(1) + torch.randn(len(rows)) > 2).float()
    loader = DataLoader(TensorDataset(rows, frauds), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(48, 512), nn.ReLU(), nn.Linear(512, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        curve, area = RunningCurve(), 0.0
        for batch, truths in loader:
            optimizer.zero_grad()
            scores = model(batch)
            nn.functional.binary_cross_entropy_with_logits(scores, truths).backward()
            optimizer.step()
            curve.update(scores.detach(), truths)
            if not args.without:
                area = curve.compute()
        print(f"epoch {epoch}: area {area or curve.compute():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
