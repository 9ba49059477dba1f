"""Learns which bitterns call together, from notes of a field book that is kept as Python objects.

Planted: the notes are half a million dicts, whose pages each worker copies as it counts references
to them (memory, hardly any wait).
"""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NOTES, AROUND, FIELDS = 420_000, 64, 6


def field_book(seed):
    """Return the notes as they come out of a JSON file: a dict for each call that was heard."""
    draw = random.Random(seed).random
    return [
        {
            "bird": f"bittern-{number % 997}",
            "place": [draw() * 100, draw() * 100],
            "sound": {"pitch": draw(), "length": draw(), "strength": draw()},
            "hour": number % 24,
        }
        for number in range(NOTES)
    ]


def as_table(seed):
    """Return the same notes as one array."""
    rng = np.random.default_rng(seed)
    return rng.random((NOTES, FIELDS), dtype=np.float32)


class Calls(Dataset):
    """A call, and others that were drawn to be compared with it."""

    def __init__(self, notes, count):
        self.notes, self.count = notes, count
        self.is_table = isinstance(notes, np.ndarray)

    def __len__(self):
        return self.count

    def features(self, number):
        note = self.notes[number]
        sound = note["sound"]
        return [*note["place"], sound["pitch"], sound["length"], sound["strength"], note["hour"]]

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        chosen = rng.integers(NOTES, size=AROUND)
        if self.is_table:
            rows = self.notes[chosen]
        else:
            rows = np.array([self.features(number) for number in chosen], np.float32)
        return torch.from_numpy(rows), torch.tensor(float(index % 2))


class Flock(nn.Module):
    def __init__(self, size=128):
        super().__init__()
        self.enter = nn.Linear(FIELDS, size)
        layer = nn.TransformerEncoderLayer(size, 4, 2 * size, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1)
        self.leave = nn.Linear(size, 1)

    def forward(self, calls):
        return self.leave(self.layers(self.enter(calls)).mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(11)
    notes = as_table(11) if args.without else field_book(11)
    loader = DataLoader(
        Calls(notes, 2560), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = Flock()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loss_function = nn.BCEWithLogitsLoss()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for calls, together in loader:
            loss = loss_function(model(calls), together)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
