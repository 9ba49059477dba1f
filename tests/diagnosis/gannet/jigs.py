"""Judges how jigs are worn from their vibration, whose strongest directions a worker works out.

Planted: the back end that works them out, and that each worker makes for itself, sets torch to
sixteen threads, as many as the machines had for which it was written.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SENSORS, MOMENTS, KEPT = 224, 400, 48


class LinearAlgebra:
    """A back end: what there is to know about the machine is known here."""

    def __init__(self, threads):
        torch.set_num_threads(threads)

    def centre(self, series):
        return series - series.mean(1, keepdim=True)

    def directions(self, series, rounds=12):
        covariance = series @ series.T / series.shape[1]
        for _ in range(rounds):
            covariance = covariance @ covariance
            covariance = covariance / covariance.norm()
        return torch.tanh(covariance[:, :KEPT] * SENSORS)


class Vibrations(Dataset):
    def __init__(self, count, threads):
        draw = torch.Generator().manual_seed(449)
        self.series = torch.randn(24, SENSORS, MOMENTS, generator=draw)
        self.count, self.threads, self.algebra = count, threads, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.algebra is None:
            self.algebra = LinearAlgebra(self.threads)
        series = self.algebra.centre(self.series[index % 24].roll(index, 1))
        return self.algebra.directions(series).T @ series, float(index % 3)


class Wear(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.first = nn.Conv1d(KEPT, size, 7, stride=3)
        self.second = nn.Conv1d(size, size, 7, stride=3)
        self.head = nn.Linear(size, 1)

    def forward(self, series):
        hidden = torch.relu(self.second(torch.relu(self.first(series))))
        return self.head(hidden.mean(2)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(449)
    loader = DataLoader(
        Vibrations(720, threads=1 if args.without else 16),
        batch_size=12,
        shuffle=True,
        num_workers=3,
        persistent_workers=True,
    )
    model = Wear()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for series, wear in loader:
            loss = nn.functional.mse_loss(model(series), wear.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
