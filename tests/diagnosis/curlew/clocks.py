"""Forecasts how far clocks will be off, from a window of their past, with a recurrent network.

Nothing is planted: the network is the work. Windows are cut from one array without workers, and
each step writes a line to a CSV file.
"""

import argparse
import csv
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLOCKS, LENGTH, WINDOW = 24, 1200, 48


class Drifts(Dataset):
    """Windows of one long table: how far each clock was off, each hour."""

    def __init__(self):
        rng = np.random.default_rng(911)
        self.drifts = rng.standard_normal((LENGTH, CLOCKS)).cumsum(0).astype(np.float32)

    def __len__(self):
        return LENGTH - WINDOW - 1

    def __getitem__(self, start):
        window = self.drifts[start : start + WINDOW + 1]
        relative = torch.from_numpy(window - window[0])
        return relative[:-1], relative[-1]


class Forecast(nn.Module):
    def __init__(self, size=192):
        super().__init__()
        self.memory = nn.LSTM(CLOCKS, size, num_layers=2, batch_first=True)
        self.head = nn.Linear(size, CLOCKS)

    def forward(self, windows):
        return self.head(self.memory(windows)[0][:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(911)
    loader = DataLoader(Drifts(), batch_size=32, shuffle=True)
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.9)
    with tempfile.TemporaryDirectory() as folder, open(Path(folder, "loss.csv"), "w") as file:
        log = csv.writer(file)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for windows, following in loader:
                loss = nn.functional.smooth_l1_loss(model(windows), following)
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                log.writerow([epoch, loss.item(), norm.item(), schedule.get_last_lr()[0]])
                file.flush()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
