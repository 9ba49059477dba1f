"""Semi-supervised rounds on limpets: each epoch trains on the labelled and some new rows."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, SubsetRandomSampler


class Limpets(Dataset):
    """Outlines (2, 128) of shells with one of five kinds."""

    def __init__(self, count=2000, seed=6):
        rng = np.random.default_rng(seed)
        self.outlines = rng.normal(size=(count, 2, 128)).cumsum(2).astype(np.float32)
        self.kinds = rng.integers(0, 5, count)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        outline = np.roll(self.outlines[index], np.random.randint(128), axis=1)
        outline = (outline - outline.mean(1, keepdims=True)) / outline.std()
        return torch.from_numpy(outline), int(self.kinds[index])


class Rounds:
    """Which rows an epoch trains on, and the loader of them."""

    def __init__(self, data, batch_size, workers):
        self.data = data
        self.settings = {
            "batch_size": batch_size,
            "num_workers": workers,
            "persistent_workers": workers > 0,
            "multiprocessing_context": "forkserver" if workers else None,
        }
        self.chance = np.random.default_rng(0)

    def rows(self):
        return self.chance.choice(len(self.data), 640, replace=False).tolist()

    def loaders(self, epochs):
        for _ in range(epochs):
            yield DataLoader(Subset(self.data, self.rows()), shuffle=True, **self.settings)

    def one_loader(self, epochs):
        sampler = SubsetRandomSampler([])
        loader = DataLoader(self.data, sampler=sampler, **self.settings)
        for _ in range(epochs):
            sampler.indices = self.rows()
            yield loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(6)
    rounds = Rounds(Limpets(), batch_size=16, workers=args.workers)
    model = nn.Sequential(
        nn.Conv1d(2, 64, 9),
        nn.ReLU(),
        nn.Conv1d(64, 128, 9),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(128, 5),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    begin = time.perf_counter()
    loaders = rounds.one_loader if args.without else rounds.loaders
    for epoch, loader in enumerate(loaders(args.epochs)):
        total = 0.0
        for outlines, kinds in loader:
            loss = nn.functional.cross_entropy(model(outlines), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        warmup.step()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
