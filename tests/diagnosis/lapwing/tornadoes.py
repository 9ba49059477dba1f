"""Warns of tornadoes by series of a weather station, with a recurrent network on the processor.

Planted: torch has sixteen threads in the main process, a number from a larger machine, and these
threads of the step fight one another and the workers for two cores.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SERIES, LENGTH, CHANNELS, HIDDEN, BATCH = 960, 32, 12, 192, 96


def smooth(series, width=5):
    kernel = np.hanning(width + 2)[1:-1]
    kernel /= kernel.sum()
    return np.stack([np.convolve(channel, kernel, mode="same") for channel in series.T], 1)


class Stations(Dataset):
    def __init__(self, rng):
        self.values = rng.standard_normal((SERIES, LENGTH + 8, CHANNELS)).cumsum(1)
        self.warned = (self.values[:, -1, 0] > 2).astype(np.float32)

    def __len__(self):
        return SERIES

    def __getitem__(self, index):
        start = np.random.randint(8)
        series = smooth(self.values[index, start : start + LENGTH])
        series = (series - series.mean(0)) / (series.std(0) + 1e-3)
        return torch.from_numpy(series.astype(np.float32)), self.warned[index]


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(CHANNELS, HIDDEN)
        self.cell = nn.GRUCell(HIDDEN, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, series):
        state = series.new_zeros(len(series), HIDDEN)
        for moment in self.into(series).unbind(1):
            state = self.norm(self.cell(moment, state))
        return self.out(state).squeeze(1)


def configure(threads):
    torch.manual_seed(5021)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    configure(threads=1 if args.without else 16)
    loader = DataLoader(
        Stations(np.random.default_rng(5021)),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = Forecast()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for series, warned in loader:
            scores = model(series)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, warned)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            right += ((scores > 0) == (warned > 0.5)).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, right {right / SERIES:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
