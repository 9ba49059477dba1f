"""Guesses what goes with what in wardrobes, from vectors of words that are kept in a file.

Planted: before each epoch, the loader is asked for anew, and to see whether the file of vectors is
still the right one, a fingerprint is made of all records as JSON.
"""

import argparse
import hashlib
import json
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = "shirt skirt coat scarf boots belt vest gown".split()
COLOURS = "red blue green grey black white ochre plum teal".split()
PIECES = len(KINDS) * len(COLOURS)


def make_records(count):
    rng = random.Random(2200)
    return [
        {
            "number": number,
            "pieces": [f"{rng.choice(COLOURS)} {rng.choice(KINDS)}" for _ in range(6)],
            "season": rng.choice(["spring", "summer", "autumn", "winter"]),
            "owner": {"age": rng.randint(9, 90), "town": f"town {rng.randrange(400)}"},
            "worn": rng.choices(range(1, 366), k=40),
        }
        for number in range(count)
    ]


def fingerprint(records):
    """Return a name for what the records hold, whatever the order of their keys."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record, sort_keys=True).encode())
    return digest.hexdigest()


def make_vectors(records):
    names = [f"{colour} {kind}" for colour in COLOURS for kind in KINDS]
    numbers = {name: number for number, name in enumerate(names)}
    return torch.tensor([[numbers[piece] for piece in record["pieces"]] for record in records])


class Wardrobes(Dataset):
    """The pieces of a wardrobe but one, and the one."""

    def __init__(self, vectors):
        self.vectors = vectors

    def __len__(self):
        return len(self.vectors)

    def __getitems__(self, indices):
        vectors = self.vectors[indices]
        shuffled = vectors[:, torch.randperm(vectors.shape[1])]
        return shuffled[:, :-1], shuffled[:, -1]


class DataModule:
    def __init__(self, records, folder, trust):
        self.records, self.folder, self.trust = records, folder, trust
        self.name = fingerprint(records)
        torch.save(make_vectors(records), self.path())

    def path(self):
        return self.folder / f"{self.name[:16]}.pt"

    def train_loader(self):
        if not self.trust and fingerprint(self.records) != self.name:
            raise ValueError("the records have changed; make the vectors anew")
        wardrobes = Wardrobes(torch.load(self.path()))
        return DataLoader(wardrobes, batch_size=1024, shuffle=True, collate_fn=tuple)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pieces = nn.Embedding(PIECES, 96)
        self.layers = nn.Sequential(nn.Linear(96, 128), nn.GELU(), nn.Linear(128, PIECES))

    def forward(self, numbers):
        return self.layers(self.pieces(numbers).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(2200)
    with tempfile.TemporaryDirectory() as folder:
        data = DataModule(make_records(60_000), Path(folder), args.without)
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pieces, missing in data.train_loader():
                loss = nn.functional.cross_entropy(model(pieces), missing)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
