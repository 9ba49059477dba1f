"""Forecasts where cranes rest, and prints a table of errors for each place after an epoch.

Planted: the table asks the model for each of the places and days by itself, which takes longer
than the epoch.
"""

import argparse
import statistics
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DAYS, PLACES = 16, 14


class Flights(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(137)
        self.days = rng.standard_normal((count, DAYS, 8)).astype(np.float32)
        self.places = rng.integers(0, PLACES, count)

    def __len__(self):
        return len(self.days)

    def __getitem__(self, index):
        days = self.days[index]
        wind = np.tanh(days[:, :2]).cumsum(0)
        return np.concatenate([days, wind], 1), self.places[index]


class Forecast(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.layers = nn.GRU(10, size, batch_first=True)
        self.leave = nn.Linear(size, PLACES)

    def forward(self, days):
        return self.leave(self.layers(days)[0][:, -1])


@torch.no_grad()
def errors_of_places(model, flights, together):
    """Return the mean loss for each place."""
    model.eval()
    losses = {place: [] for place in range(PLACES)}
    if together:
        days = torch.tensor(np.stack([flights[number][0] for number in range(len(flights))]))
        every = nn.functional.cross_entropy(
            model(days), torch.from_numpy(flights.places), reduction="none"
        ).tolist()
        for place, loss in zip(flights.places.tolist(), every, strict=True):
            losses[place].append(loss)
    else:
        for number in range(len(flights)):
            days, place = flights[number]
            scores = model(torch.from_numpy(days)[None])
            loss = nn.functional.cross_entropy(scores, torch.tensor([place]))
            losses[int(place)].append(loss.item())
    model.train()
    return {place: statistics.fmean(one) for place, one in losses.items() if one}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(137)
    flights = Flights(2400)
    loader = DataLoader(
        flights, batch_size=48, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for days, places in loader:
            loss = nn.functional.cross_entropy(model(days), places)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        errors = errors_of_places(model, flights, together=args.without)
        worst = max(errors, key=errors.get)
        print(f"epoch {epoch}: loss {loss:.3f}, worst place {worst} ({errors[worst]:.3f})")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
