"""Fills gaps in sonnets: whole words are hidden, all of their pieces at once.

Planted: the collator chooses the words to hide piece by piece, and searches lists for each.
"""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PIECES, LENGTH, HIDDEN, HOLE = 3000, 96, 0.15, 1


class Sonnets(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(443)
        self.pieces = rng.integers(2, PIECES, (count, LENGTH))
        self.begins = rng.random((count, LENGTH)) < 0.6

    def __len__(self):
        return len(self.pieces)

    def __getitem__(self, index):
        return {"pieces": self.pieces[index], "begins": self.begins[index]}


class HideWords:
    """Collates sonnets, in each of which a part of the words is replaced by holes."""

    def __init__(self, arrays):
        self.arrays = arrays

    def choose(self, begins):
        """Return which pieces to hide, as the reference implementation does."""
        words = []
        for place, begin in enumerate(begins):
            if words and not begin:
                words[-1].append(place)
            else:
                words.append([place])
        random.shuffle(words)
        covered = []
        for word in words:
            if len(covered) >= HIDDEN * len(begins):
                continue
            if any(place in covered for place in word):
                continue
            covered.extend(word)
        return [1 if place in covered else 0 for place in range(len(begins))]

    def choose_by_arrays(self, begins):
        words = np.cumsum(begins, 1)
        draws = np.random.random(begins.shape) < HIDDEN
        return np.take_along_axis(draws, words % LENGTH, 1)

    def __call__(self, sonnets):
        pieces = torch.from_numpy(np.stack([sonnet["pieces"] for sonnet in sonnets]))
        if self.arrays:
            begins = np.stack([sonnet["begins"] for sonnet in sonnets])
            hidden = torch.from_numpy(self.choose_by_arrays(begins))
        else:
            rows = [self.choose(sonnet["begins"].tolist()) for sonnet in sonnets]
            hidden = torch.tensor(rows).bool()
        return pieces.masked_fill(hidden, HOLE), pieces.masked_fill(~hidden, -100)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(443)
    loader = DataLoader(
        Sonnets(12_800), batch_size=256, shuffle=True, num_workers=1,
        collate_fn=HideWords(args.without), persistent_workers=True,
    )  # fmt: skip
    embed = nn.Embedding(PIECES, 16)
    mix = nn.Conv1d(16, 16, 5, padding=2)
    optimizer = torch.optim.SGD([*embed.parameters(), *mix.parameters()], lr=0.1)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pieces, labels in loader:
            states = torch.relu(mix(embed(pieces).transpose(1, 2))).transpose(1, 2)
            asked = labels != -100
            near = states[asked][:200]
            loss = nn.functional.cross_entropy(near @ embed.weight.T, labels[asked][:200])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
