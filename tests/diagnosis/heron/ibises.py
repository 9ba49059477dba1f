"""Learns which ibises of a colony will nest, from features of their meetings.

Planted: each batch carries the notes of its meetings, as lists of tuples of Python objects, from
the worker to the main process, where nobody needs more than one of them for the log.
"""

import argparse
import random
import time
from collections import namedtuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BIRDS, NOTES, FEATURES = 60, 1600, 16
Batch = namedtuple("Batch", "features weights labels notes")


def write_notes(seed):
    """Return notes of (day, place, minutes together) for some colonies."""
    draw = random.Random(seed)
    return [
        [(draw.randrange(365), f"pond {draw.randrange(90)}", draw.random()) for _ in range(NOTES)]
        for _ in range(160)
    ]


class Meetings(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(139)
        self.features = rng.standard_normal((count, BIRDS, FEATURES)).astype(np.float32)
        self.weights = rng.random((50, BIRDS, BIRDS)).astype(np.float32)
        self.notes = write_notes(139)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        weights = self.weights[index % 50]
        weights = np.exp(weights - weights.max(1, keepdims=True))
        notes = self.notes[index % len(self.notes)]
        return self.features[index], weights / weights.sum(1, keepdims=True), index % 2, notes


class Join:
    """Joins meetings to a batch, with all notes or with those of the first colony."""

    def __init__(self, all_notes):
        self.all_notes = all_notes

    def __call__(self, meetings):
        features, weights, labels, notes = zip(*meetings, strict=True)
        return Batch(
            torch.from_numpy(np.stack(features)),
            torch.from_numpy(np.stack(weights)),
            torch.tensor(labels).float(),
            list(notes) if self.all_notes else [notes[0][:1]],
        )


class GraphNetwork(nn.Module):
    def __init__(self, size=48):
        super().__init__()
        self.enter = nn.Linear(FEATURES, size)
        self.leave = nn.Linear(size, 1)

    def forward(self, features, weights):
        return self.leave((weights @ torch.relu(self.enter(features))).mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(139)
    loader = DataLoader(
        Meetings(1280),
        batch_size=32,
        shuffle=True,
        num_workers=2,
        collate_fn=Join(all_notes=not args.without),
        persistent_workers=True,
    )
    model = GraphNetwork()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in loader:
            found = model(batch.features, batch.weights)
            loss = nn.functional.binary_cross_entropy_with_logits(found, batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        day, place, minutes = batch.notes[0][0]
        print(f"epoch {epoch}: loss {loss:.3f}, such as day {day} at {place}, {minutes:.1f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
