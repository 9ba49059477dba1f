"""Guesses the wind from the tugs on a kite's string; flights differ in length."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Flights(Dataset):
    """Tugs of each flight; few flights last very long."""

    def __init__(self, count=2000, seed=36):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(20, 80, count)
        lengths[::400] = 6000
        self.tugs = [rng.normal(size=length).round(3).tolist() for length in lengths]
        self.winds = rng.random(count).astype(np.float32)

    @property
    def longest(self):
        return max(map(len, self.tugs))

    def __len__(self):
        return len(self.tugs)

    def __getitem__(self, index):
        return self.tugs[index], self.winds[index]


class Pad:
    """Makes rows of one length of a batch's flights."""

    def __init__(self, length=None):
        self.length = length

    def __call__(self, flights):
        lengths = [len(tugs) for tugs, _ in flights]
        length = self.length or max(lengths)
        rows, mask = [], []
        for tugs, _ in flights:
            rest = length - len(tugs)
            rows.append(tugs + [0.0] * rest)
            mask.append([1] * len(tugs) + [0] * rest)
        winds = torch.tensor([float(wind) for _, wind in flights])
        return torch.tensor(rows), torch.tensor(mask), torch.tensor(lengths), winds


class Gauge(nn.Module):
    def __init__(self, size=48):
        super().__init__()
        self.recurrent = nn.GRU(1, size, batch_first=True)
        self.head = nn.Linear(size, 1)

    def forward(self, rows, lengths):
        # What follows the first 100 tugs says little of the wind.
        last = lengths.clamp(max=100) - 1
        states = self.recurrent(rows[:, : int(last.max()) + 1, None])[0]
        return self.head(states[torch.arange(len(last)), last]).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(36)
    flights = Flights()
    loader = DataLoader(
        flights, batch_size=32, shuffle=True, num_workers=1, persistent_workers=True,
        collate_fn=Pad() if args.without else Pad(flights.longest),
    )  # fmt: skip
    model = Gauge()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for rows, _mask, lengths, winds in loader:
            loss = nn.functional.mse_loss(model(rows, lengths), winds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
