"""Draws the outlines of dotterels as sequences of strokes, and follows how well it does.

Planted: each step turns its sequences back into text, number by number with `.item()`, to count
the distance of edits to the truth.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STROKES = "<urdlUDRL>nsew"
LENGTH = 40


class Outlines(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(191)
        self.strokes = rng.integers(0, len(STROKES), (count, LENGTH + 1))

    def __len__(self):
        return len(self.strokes)

    def __getitem__(self, index):
        strokes = torch.from_numpy(np.roll(self.strokes[index], index % 3))
        return strokes[:-1], strokes[1:]


class Artist(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.table = nn.Embedding(len(STROKES), size)
        self.layers = nn.GRU(size, size, batch_first=True)
        self.leave = nn.Linear(size, len(STROKES))

    def forward(self, strokes):
        return self.leave(self.layers(self.table(strokes))[0])


def as_text(numbers):
    return "".join(STROKES[number.item()] for number in numbers)


def edits(first, second):
    """Return how many letters to change, add or leave out."""
    row = list(range(len(second) + 1))
    for place, one in enumerate(first, 1):
        before, row[0] = row[0], place
        for at, other in enumerate(second, 1):
            change = before + (one != other)
            before, row[at] = row[at], min(change, row[at] + 1, row[at - 1] + 1)
    return row[-1]


class Progress:
    def __init__(self, every):
        self.every, self.steps, self.distances = every, 0, []

    def add(self, scores, truth):
        self.steps += 1
        if self.steps % self.every:
            return
        for numbers, right in zip(scores.argmax(-1), truth, strict=True):
            self.distances.append(edits(as_text(numbers), as_text(right)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(191)
    loader = DataLoader(Outlines(3200), batch_size=32, shuffle=True, num_workers=2)
    model = Artist()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    progress = Progress(every=100 if args.without else 1)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for strokes, following in loader:
            scores = model(strokes)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress.add(scores.detach(), following)
        print(f"epoch {epoch}: loss {loss:.3f}, {np.mean(progress.distances):.1f} edits")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
