"""Sorts lines of old logbooks about scoters; the collate function splits their words into pieces.

Planted: the pieces of each word are searched for anew, with regular expressions, each time that the
word comes.
"""

import argparse
import random
import re
import time
from functools import lru_cache

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")
LETTERS = "etaoinshrdlucmfw"


def write_lines(count, words=400):
    draw = random.Random(73)
    known = ["".join(draw.choices(LETTERS, k=draw.randint(3, 11))) for _ in range(words)]
    return [(" ".join(draw.choices(known, k=30)) + ".", number % 4) for number in range(count)]


class Pieces:
    """Merges the letters of words, pair by pair, in a fixed order."""

    def __init__(self, merges=90):
        draw = random.Random(79)
        pairs = {"".join(draw.choices(LETTERS, k=2)): None for _ in range(merges)}
        self.numbers = {piece: number + 1 for number, piece in enumerate([*LETTERS, *pairs])}
        self.pairs = list(pairs)

    def split(self, word):
        text = " ".join(word)
        for pair in self.pairs:
            text = re.sub(rf"(?<!\S){re.escape(pair[0])} {re.escape(pair[1])}(?!\S)", pair, text)
        return tuple(self.numbers.get(piece, 0) for piece in text.split())


class Lines(Dataset):
    def __init__(self, count=1200):
        self.lines = write_lines(count)

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return self.lines[index]


class Encode:
    """Makes a batch of lines: pieces, padded with zeros to the longest line, and kinds."""

    def __init__(self, remember):
        pieces = Pieces()
        self.remember, self.pieces, self.split = remember, pieces, pieces.split

    def __call__(self, samples):
        if self.remember and self.split == self.pieces.split:
            self.split = lru_cache(maxsize=None)(self.pieces.split)
        rows = []
        for line, _ in samples:
            rows.append([piece for word in WORD.findall(line) for piece in self.split(word)])
        batch = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for place, row in zip(batch, rows, strict=True):
            place[: len(row)] = torch.tensor(row)
        return batch, torch.tensor([kind for _, kind in samples])


class Sorter(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.pieces = nn.Embedding(len(LETTERS) + 92, size, padding_idx=0)
        self.mix = nn.Conv1d(size, size, 3, padding=1)
        self.head = nn.Linear(size, 4)

    def forward(self, batch):
        hidden = self.pieces(batch).transpose(1, 2)
        return self.head(self.mix(hidden).relu().mean(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(73)
    loader = DataLoader(
        Lines(),
        batch_size=24,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        collate_fn=Encode(args.without),
    )
    model = Sorter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch, kinds in loader:
            loss = nn.functional.cross_entropy(model(batch), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
