"""Finds broken strands of hawsers in long series, which a collate function leaves as arrays.

Planted: arrays of double precision go through the worker's pipe; 40 MB are pickled for a batch.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STRANDS, LENGTH = 40, 8000


class Hawsers(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(307)
        self.series = rng.standard_normal((8, STRANDS, LENGTH))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.series[index % len(self.series)], index % 2


def keep_arrays(samples):
    """Leave the samples as they are: the model's own code makes tensors of them."""
    return [series for series, _ in samples], [broken for _, broken in samples]


def pool_first(samples):
    """Send only what the model sees: the mean of each 50 values, in single precision."""
    series, broken = keep_arrays(samples)
    return torch.stack([pooled(one) for one in series]), broken


def pooled(series):
    rows = torch.from_numpy(series).view(STRANDS, -1, 50)
    return rows.mean(2).float()


class Strands(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(STRANDS, 48, 7, 2), nn.ReLU(), nn.Conv1d(48, 48, 5))
        self.head = nn.Linear(48, 2)

    def forward(self, series):
        if not torch.is_tensor(series):
            series = torch.stack([pooled(one) for one in series])
        return self.head(self.body(series).amax(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(307)
    loader = DataLoader(
        Hawsers(480),
        batch_size=16,
        num_workers=1,
        collate_fn=pool_first if args.without else keep_arrays,
    )
    model = Strands()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for series, broken in loader:
            loss = nn.functional.cross_entropy(model(series), torch.tensor(broken))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
