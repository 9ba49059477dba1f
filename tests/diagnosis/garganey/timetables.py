"""Corrects timetables of buses: how late the next stops are, from the stops before."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RUNS, STOPS, NEXT, FEATURES, BATCH = 2560, 96, 8, 6, 64


class Runs(Dataset):
    """A bus's delays stop by stop, with the hour and the weather."""

    def __init__(self):
        rng = np.random.default_rng(56)
        self.delays = np.cumsum(rng.normal(0, 1, (400, STOPS + NEXT)), axis=1).astype(np.float32)
        self.sides = rng.normal(0, 1, (400, FEATURES - 1)).astype(np.float32)

    def __len__(self):
        return RUNS

    def __getitem__(self, index):
        delays, sides = self.delays[index % 400], self.sides[index % 400]
        seen = np.concatenate([delays[:STOPS, None], np.tile(sides, (STOPS, 1))], axis=1)
        return torch.from_numpy(seen), torch.from_numpy(delays[STOPS:] - delays[STOPS - 1])


class Late(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.first = nn.Linear(FEATURES, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, 2)
        self.last = nn.Linear(width, NEXT)

    def forward(self, seen):
        return self.last(self.body(self.first(seen))[:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(56)
    loader = DataLoader(
        Runs(),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Late()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for seen, late in loader:
            loss = nn.functional.smooth_l1_loss(model(seen), late)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
