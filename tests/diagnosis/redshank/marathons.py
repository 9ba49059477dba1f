"""Predicts a runner's time for a marathon from the weeks of training before it."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RUNNERS, DAYS, MEASURES, BATCH = 1200, 112, 10, 32


def diaries():
    """Days of training of each runner, and the minutes of the race."""
    rng = np.random.default_rng(24)
    days = rng.gamma(2, 1, (RUNNERS, DAYS, MEASURES)).astype(np.float32)
    days *= rng.random((RUNNERS, DAYS, 1)) < 0.7
    minutes = 300 - days[..., 0].sum(1) * 0.3 + rng.normal(0, 5, RUNNERS)
    return torch.from_numpy(days), torch.from_numpy(minutes.astype(np.float32))


class Runner(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.days = nn.Linear(MEASURES, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.weights = nn.Linear(width, 1)
        self.last = nn.Linear(width, 1)

    def forward(self, days):
        seen, _ = self.lstm(torch.relu(self.days(days)))
        share = torch.softmax(self.weights(seen), 1)
        return self.last((seen * share).sum(1))[:, 0] * 30 + 250


def error(model, loader):
    model.eval()
    with torch.no_grad():
        wrong = torch.cat([(model(days) - minutes).abs() for days, minutes in loader])
    model.train()
    return wrong.mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(24)
    days, minutes = diaries()
    train = DataLoader(TensorDataset(days[:1000], minutes[:1000]), BATCH, shuffle=True)
    test = DataLoader(TensorDataset(days[1000:], minutes[1000:]), 100)
    model = Runner()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = float("inf")
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for weeks, raced in train:
            loss = nn.functional.l1_loss(model(weeks), raced)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        best = min(best, float(error(model, test)))
        print(f"epoch {epoch}: loss {loss:.2f} minutes, best {best:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
