"""Trains one model on the records of many clinics in turn, as in federated learning.

Planted: the function that trains on one clinic makes a loader with three workers, which start and
end for four batches of little work each time.
"""

import argparse
import copy
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLINICS, STAYS, HOURS, SIGNS, BATCH = 12, 96, 36, 5, 24


class Stays(Dataset):
    """The hours of stays in one clinic, smoothed over three hours."""

    def __init__(self, clinic):
        rng = np.random.default_rng(79 + clinic)
        self.tables = []
        for _ in range(STAYS):
            hours = rng.normal(clinic % 3, 1, (HOURS, SIGNS)).cumsum(0)
            self.tables.append(pd.DataFrame(hours, columns=[f"sign{n}" for n in range(SIGNS)]))
        self.worse = rng.integers(0, 2, STAYS)

    def __len__(self):
        return STAYS

    def __getitem__(self, index):
        smooth = self.tables[index].rolling(3, min_periods=1).mean().to_numpy()
        smooth = smooth - smooth[:1] + 0.2 * self.worse[index]
        return torch.from_numpy(smooth).float(), int(self.worse[index])


class Course(nn.Module):
    def __init__(self):
        super().__init__()
        self.hours = nn.GRU(SIGNS, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, hours):
        return self.head(self.hours(hours)[1][0])


def train_on(model, stays, workers):
    """The weights after one pass over a clinic, and its loss."""
    local = copy.deepcopy(model)
    optimizer = torch.optim.SGD(local.parameters(), lr=0.05)
    total = 0.0
    for hours, worse in DataLoader(stays, BATCH, shuffle=True, num_workers=workers):
        loss = nn.functional.cross_entropy(local(hours), worse)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return local.state_dict(), total / (len(stays) // BATCH)


def mean_of(states):
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(79)
    torch.set_num_threads(1)
    clinics = [Stays(clinic) for clinic in range(CLINICS)]
    workers = 0 if args.without else 3
    model = Course()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        states, losses = [], []
        for stays in clinics:
            state, loss = train_on(model, stays, workers)
            states.append(state)
            losses.append(loss)
        model.load_state_dict(mean_of(states))
        print(f"round {epoch}: loss {np.mean(losses):.3f}, worst {max(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
