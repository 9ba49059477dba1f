"""Values flats by what their balconies look at, with a loader that can go on where it stopped.

Planted: the batch sampler notes where it is before each batch, for a job that may be stopped at
any time, and writes the whole order of the epoch into its file each time.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

FLATS, VALUES, BATCH = 24_000, 32, 120


class Notes:
    """A small file of JSON that is either the old or the new one, never half of it."""

    def __init__(self, path):
        self.path = path
        self.new = path.with_suffix(".new")

    def read(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def write(self, **state):
        with self.new.open("w") as file:
            json.dump(state, file)
        os.replace(self.new, self.path)


class GoesOn(Sampler):
    """Batches in random order; begins at the batch after the last one that was noted."""

    def __init__(self, size, notes, with_order):
        self.size, self.notes, self.with_order = size, notes, with_order
        self.epoch = 0

    def __len__(self):
        return self.size // BATCH

    def order(self):
        generator = torch.Generator().manual_seed(3037 + self.epoch)
        return torch.randperm(self.size, generator=generator).tolist()

    def note(self, order, place):
        state = {"epoch": self.epoch, "next": place + 1}
        if self.with_order:
            state["order"] = order
        self.notes.write(**state)

    def __iter__(self):
        noted = self.notes.read()
        first = noted["next"] if noted.get("epoch") == self.epoch else 0
        order = self.order()
        for place in range(first, len(self)):
            self.note(order, place)
            yield order[place * BATCH : (place + 1) * BATCH]
        self.epoch += 1


class Flats(Dataset):
    def __init__(self):
        rng = np.random.default_rng(3037)
        self.values = torch.from_numpy(rng.normal(0, 1, (FLATS, VALUES)).astype(np.float32))
        self.prices = self.values[:, :5].sum(1) + 0.3 * self.values[:, 7].square()

    def __len__(self):
        return FLATS

    def __getitems__(self, indices):
        return list(zip(self.values[indices], self.prices[indices], strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(3037)
    model = nn.Sequential(
        nn.Linear(VALUES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        notes = Notes(Path(folder, "state.json"))
        loader = DataLoader(
            Flats(),
            batch_sampler=GoesOn(FLATS, notes, with_order=not args.without),
            num_workers=1,
            persistent_workers=True,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for values, prices in loader:
                loss = nn.functional.smooth_l1_loss(model(values).squeeze(1), prices)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            torch.save(model.state_dict(), Path(folder, "last.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
