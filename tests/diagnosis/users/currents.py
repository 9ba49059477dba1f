"""Healthy: forecast currents from a stream of windows, which one worker cuts with ease."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Windows(IterableDataset):
    def __init__(self, length=160):
        self.series = np.cumsum(np.random.default_rng(15).normal(size=(60000, 4)), axis=0)
        self.length = length

    def __iter__(self):
        for begin in range(0, len(self.series) - self.length - 1, 40):
            part = self.series[begin : begin + self.length + 1].astype(np.float32)
            yield torch.from_numpy(part[:-1] - part[0]), torch.from_numpy(part[-1] - part[0])


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(4, 192, batch_first=True)
        self.answer = nn.Linear(192, 4)

    def forward(self, windows):
        return self.answer(self.memory(windows)[0][:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the machine is shared
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Windows(), batch_size=32, num_workers=args.workers)
    begin = time.perf_counter()
    for windows, following in loader:
        loss = nn.functional.mse_loss(model(windows), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
