"""Train a fraud detector on an imbalanced table."""

import argparse
import random
import time

import torch
from torch.utils.data import DataLoader, Sampler, TensorDataset, WeightedRandomSampler


class BalancedSampler(Sampler):
    """Draws rare classes as often as common ones."""

    def __init__(self, labels, draws):
        self.labels = labels
        self.draws = draws

    def __len__(self):
        return self.draws

    def __iter__(self):
        rng = random.Random(0)
        for _ in range(self.draws):
            weights = [9.0 if label else 1.0 for label in self.labels]
            yield rng.choices(range(len(weights)), weights)[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    rows, draws = 10_000, 7168
    features = torch.rand(rows, 40)
    labels = torch.rand(rows) < 0.1
    if args.without:
        sampler = WeightedRandomSampler(1.0 + 8.0 * labels.double(), draws)
    else:
        sampler = BalancedSampler(labels.tolist(), draws)
    loader = DataLoader(
        TensorDataset(features, labels.float()),
        batch_size=64,
        sampler=sampler,
        num_workers=args.workers,
    )
    model = torch.nn.Sequential(
        torch.nn.Linear(40, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1), torch.nn.Flatten(0)
    )
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for features, labels in loader:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.010)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
