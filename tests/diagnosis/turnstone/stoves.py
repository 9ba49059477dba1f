"""Forecasts the heat of stoves with a recurrent network, from windows of series.

Nothing is planted: the recurrent network is the work. Windows are cut without workers, a lock
guards the cache of series, and a debug counter notes each window.
"""

import argparse
import collections
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WINDOW, CHANNELS, STOVES = 80, 5, 12


class Series(Dataset):
    def __init__(self, each):
        self.each, self.cache, self.lock = each, {}, threading.Lock()
        self.seen = collections.Counter()

    def __len__(self):
        return STOVES * self.each

    def series(self, stove):
        with self.lock:
            if stove not in self.cache:
                rng = np.random.default_rng(1171 + stove)
                steps = rng.standard_normal((self.each + WINDOW, CHANNELS), dtype=np.float32)
                self.cache[stove] = np.cumsum(steps, 0) / 30
            return self.cache[stove]

    def __getitem__(self, index):
        stove, begin = divmod(index, self.each)
        self.seen[stove] += 1
        window = torch.from_numpy(self.series(stove)[begin : begin + WINDOW + 1])
        return window[:-1], window[-1, 0]


class Heat(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(CHANNELS, 96, num_layers=2, batch_first=True)
        self.head = nn.Linear(96, 1)

    def forward(self, windows):
        return self.head(self.cells(windows)[0][:, -1]).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1171)
    series = Series(120)
    loader = DataLoader(series, batch_size=24, shuffle=True)
    model = Heat()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for windows, following in loader:
            loss = nn.functional.mse_loss(model(windows), following)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}, {sum(series.seen.values())} windows")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
