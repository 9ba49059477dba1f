"""Predicts how dulse dries, from long series that are mapped into memory.

Nothing is planted: a recurrent network is the work. One worker cuts whole batches from the series,
which the loader passes on as they are.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

LENGTH, BATCH, SENSORS = 96, 24, 8


class Series(IterableDataset):
    """Yields whole batches: cuts of a mapped file, and what came after them."""

    def __init__(self, path, batches):
        self.path, self.batches = path, batches

    def __iter__(self):
        series = np.memmap(self.path, np.float32, "r").reshape(-1, SENSORS)
        rng = np.random.default_rng(torch.initial_seed() % 2**32)
        for _ in range(self.batches):
            starts = rng.integers(0, len(series) - LENGTH - 1, BATCH)
            cuts = np.stack([series[start : start + LENGTH + 1] for start in starts])
            cuts = (cuts - cuts.mean(1, keepdims=True)) / (cuts.std(1, keepdims=True) + 0.1)
            cuts = torch.from_numpy(cuts)
            yield cuts[:, :-1], cuts[:, -1]


class Drying(nn.Module):
    def __init__(self, size=128):
        super().__init__()
        self.memory = nn.LSTM(SENSORS, size, num_layers=2, batch_first=True)
        self.head = nn.Linear(size, SENSORS)

    def forward(self, cuts):
        return self.head(self.memory(cuts)[0][:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(103)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "dulse.f32")
        draw = np.random.default_rng(103)
        draw.standard_normal((200_000, SENSORS), dtype=np.float32).cumsum(0).tofile(path)
        loader = DataLoader(
            Series(path, 60), batch_size=None, num_workers=1, persistent_workers=True
        )
        model = Drying()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for number, (cuts, following) in enumerate(loader):
                loss = nn.functional.mse_loss(model(cuts), following)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if number % 10 == 0:
                    print(f"epoch {epoch} batch {number}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
