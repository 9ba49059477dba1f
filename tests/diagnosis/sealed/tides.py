"""Predict the height of the tide from the last two days, with a recurrent network."""

import argparse
import csv
import math
import pathlib
import random
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Gauge(Dataset):
    """Windows of a tide gauge's readings."""

    def __init__(self, path, window=96):
        with path.open(newline="") as file:
            readings = [float(row["height"]) for row in csv.DictReader(file)]
        self.heights = torch.tensor(readings)
        self.window = window

    def __len__(self):
        return len(self.heights) - self.window

    def __getitem__(self, index):
        end = index + self.window
        return self.heights[index:end, None], self.heights[end]


def write_gauge(path, hours):
    draw = random.Random(12)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["hour", "height"])
        for hour in range(hours):
            moon = math.sin(hour * 2 * math.pi / 12.42)
            sun = 0.4 * math.sin(hour * 2 * math.pi / 12)
            writer.writerow([hour, f"{moon + sun + draw.gauss(0, 0.05):.3f}"])


class Forecaster(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.memory = nn.LSTM(1, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, windows):
        states, _ = self.memory(windows)
        return self.head(states[:, -1]).squeeze(1)


def fit(model, loader, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        total = 0.0
        for windows, heights in loader:
            loss = nn.functional.smooth_l1_loss(model(windows), heights)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--width", type=int, default=160)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "gauge.csv"
        write_gauge(path, 1700)
        loader = DataLoader(Gauge(path), 64, shuffle=True, num_workers=args.workers)
        model = Forecaster(args.width)
        begin = time.perf_counter()
        fit(model, loader, args.epochs)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
