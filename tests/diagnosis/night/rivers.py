"""Levels of rivers, windows of long series, from one spawned worker that keeps up."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Windows(IterableDataset):
    """Windows of random rivers; a pandas-like table of stations lies beside them."""

    def __init__(self, rivers=20, windows=1280, length=128):
        rng = np.random.default_rng(7)
        self.levels = np.cumsum(rng.standard_normal((rivers, 20_000)), 1).astype(np.float32)
        self.windows = windows
        self.length = length

    def __iter__(self):
        rng = np.random.default_rng()
        for _ in range(self.windows):
            series = self.levels[rng.integers(len(self.levels))]
            begin = rng.integers(len(series) - self.length - 1)
            window = series[begin : begin + self.length + 1]
            window = (window - window.mean()) / (window.std() + 1e-6)
            yield torch.from_numpy(window[:-1, None]), torch.from_numpy(window[1:, None])


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRU(1, 160, batch_first=True)
        self.level = nn.Linear(160, 1)

    def forward(self, levels):
        return self.level(self.memory(levels)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="nothing to leave out")
    parser.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(
        Windows(), batch_size=32, num_workers=1,
        multiprocessing_context="spawn", persistent_workers=True,
    )  # fmt: skip
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for _ in range(3):
        for before, after in loader:
            loss = nn.functional.mse_loss(model(before), after)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
