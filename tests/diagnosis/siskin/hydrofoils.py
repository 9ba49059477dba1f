"""Keeps a hydrofoil level: foretells its pitch from the sensors of the moments before."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

SENSORS, MOMENTS, PAST, BATCH, WINDOWS, SHOWN = 12, 30_000, 64, 48, 3072, 384


class Rides(Dataset):
    """Windows of a ride; words of the steersman's journal are kept as Python objects."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        waves = np.cumsum(rng.normal(0, 0.1, (MOMENTS, SENSORS)), axis=0)
        self.ride = torch.from_numpy((waves - waves.mean(0)).astype(np.float32))
        self.journal = [{"moment": moment, "sea": moment // 900} for moment in range(MOMENTS)]

    def __len__(self):
        return WINDOWS + SHOWN

    def __getitem__(self, index):
        start = index * 8
        sea = sum(entry["sea"] for entry in self.journal[start : start + PAST : 8]) / 8
        return self.ride[start : start + PAST] * (1 + sea / 100), self.ride[start + PAST, 0]


class Pitch(nn.Module):
    def __init__(self, width=80):
        super().__init__()
        self.recur = nn.LSTM(SENSORS, width, num_layers=2, batch_first=True)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, windows):
        return self.head(self.recur(windows)[0][:, -1])[:, 0]


@torch.no_grad()
def off(model, loader):
    model.eval()
    errors = [(model(windows) - pitch).abs() for windows, pitch in loader]
    model.train()
    return torch.cat(errors).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(93)
    torch.set_num_threads(1)
    rides = Rides(93)
    training = DataLoader(Subset(rides, range(WINDOWS)), BATCH, shuffle=True)
    validation = DataLoader(Subset(rides, range(WINDOWS, WINDOWS + SHOWN)), BATCH)
    model = Pitch()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for windows, pitch in training:
            loss = nn.functional.smooth_l1_loss(model(windows), pitch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(
            f"epoch {epoch}: loss {total / len(training):.4f}, off by {off(model, validation):.3f}"
        )
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
