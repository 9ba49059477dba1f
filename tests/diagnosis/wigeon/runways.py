"""Learns which airports airlines may join next, from the network of routes they fly."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AIRPORTS, AIRLINES, WIDTH, NEGATIVES, BATCH = 400, 8, 64, 12, 32


def routes():
    """Hubs fly nearly everywhere, and nearly all routes begin at one of them."""
    rng = np.random.default_rng(51)
    flown = rng.random((AIRPORTS, AIRPORTS)) < 0.05
    hubs = rng.permutation(AIRPORTS)[:40]
    flown[hubs] = rng.random((len(hubs), AIRPORTS)) < 0.96
    np.fill_diagonal(flown, True)
    starts, ends = np.nonzero(flown)
    return flown, starts, ends


class Routes(Dataset):
    """A route, and destinations that are not flown to from where it begins."""

    def __init__(self, samples, open_ends):
        self.flown, self.starts, self.ends = routes()
        self.there = set(zip(self.starts.tolist(), self.ends.tolist(), strict=True))
        rng = np.random.default_rng(5)
        self.picked = rng.integers(0, len(self.starts), samples)
        self.spots = rng.uniform(-1, 1, (AIRPORTS, 2))
        self.open_ends = None
        if open_ends:
            self.open_ends = [np.flatnonzero(~row) for row in self.flown]

    def __len__(self):
        return len(self.picked)

    def not_flown(self, start):
        if self.open_ends:
            return np.random.choice(self.open_ends[start], NEGATIVES)
        ends = []
        while len(ends) < NEGATIVES:
            end = np.random.randint(AIRPORTS)
            if (start, end) not in self.there:
                ends.append(end)
        return np.array(ends)

    def demand(self, start, ends):
        """How many would fly, by distance, at each hour of a day."""
        far = np.linalg.norm(self.spots[ends] - self.spots[start], axis=1)[:, None]
        hours = np.arange(24) / 24
        return np.exp(-far * 2) * (1 + 0.5 * np.sin(2 * np.pi * (hours + far)))

    def __getitem__(self, index):
        route = self.picked[index]
        start = self.starts[route]
        ends = np.append(self.not_flown(int(start)), self.ends[route])
        demand = self.demand(start, ends).astype(np.float32)
        return int(start), torch.from_numpy(ends), torch.from_numpy(demand)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(AIRPORTS, WIDTH)
        self.body = nn.Sequential(
            nn.Linear(2 * WIDTH + 24, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
        )
        self.last = nn.Linear(128, 1)

    def forward(self, starts, ends, demand):
        begin = self.places(starts)[:, None].expand(-1, ends.shape[1], -1)
        pairs = torch.cat([begin, self.places(ends), demand], 2)
        return self.last(self.body(pairs))[..., 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(51)
    torch.set_num_threads(1)
    loader = DataLoader(
        Routes(8000, args.without),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = Scorer()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for starts, ends, demand in loader:
            scores = model(starts, ends, demand)
            right = torch.full((len(starts),), NEGATIVES)
            loss = nn.functional.cross_entropy(scores, right)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
