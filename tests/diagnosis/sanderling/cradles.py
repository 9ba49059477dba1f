"""Watches over cradles: tells from a minute of sound whether a child cries.

Planted: the data set keeps each sound that it has got from the server, but its workers, which have
what was kept, are ended and started anew with each epoch.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FRAMES, BANDS, LATENCY = 60, 16, 0.03


class Kept(Dataset):
    """A data set that keeps each sample it has got, and changes a copy of it each time."""

    def __init__(self):
        self.kept = {}

    def __getitem__(self, index):
        if index not in self.kept:
            self.kept[index] = self.get(index)
        return self.change(*self.kept[index])

    def change(self, sound, label):
        return sound, label


class Cradles(Kept):
    def __init__(self, count):
        super().__init__()
        self.cries = np.random.default_rng(1117).integers(0, 2, count)

    def __len__(self):
        return len(self.cries)

    def get(self, index):
        time.sleep(LATENCY)  # the server sends a minute of sound
        sound = np.random.default_rng(index).normal(0, 1, (FRAMES, BANDS)).astype(np.float32)
        sound[10:30, 8:] += self.cries[index]
        return torch.from_numpy(sound), float(self.cries[index])

    def change(self, sound, label):
        shift = int(torch.randint(FRAMES, ()))
        return sound.roll(shift, 0) + 0.1 * torch.randn_like(sound), label


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1117)
    loader = DataLoader(
        Cradles(180), batch_size=10, shuffle=True, num_workers=2, persistent_workers=args.without
    )
    model = nn.Sequential(
        nn.Conv1d(FRAMES, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * (BANDS - 2), 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for sounds, cries in loader:
            logits = model(sounds).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, cries.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
