"""Classifies notes on lapwings by their words.

Planted: one note in ninety has a long ruler of letters, on which the expression that looks for a
heading tries all ways to divide it.
"""

import argparse
import random
import re
import time
from itertools import pairwise

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NOTES, WORDS, BUCKETS, RARE = 3600, 24, 4096, 90
VOCABULARY = (
    "lapwing nest field egg crest call plough meadow spring hatch chick wing pair ground wet crow "
    "fox dawn count ring flock north marsh grass"
).split()

HEADING = re.compile(r"^(?:[a-z]+ ?)+:")
QUICK_HEADING = re.compile(r"^[a-z][a-z ]*:")
WORD = re.compile(r"[a-z]+")


def write_notes(seed):
    random_words = random.Random(seed)
    notes = []
    for number in range(NOTES):
        words = random_words.choices(VOCABULARY, k=WORDS)
        if number % RARE == 7:
            words.insert(0, "x" * 21 + "|")
        elif number % 3 == 0:
            words.insert(0, "field:")
        else:
            words.insert(0, "(no heading)")
        notes.append(" ".join(words))
    return notes


class Notes(Dataset):
    def __init__(self, notes, heading):
        self.notes, self.heading = notes, heading

    def __len__(self):
        return len(self.notes)

    def without_heading(self, note):
        found = self.heading.match(note)
        return note[found.end() :] if found else note

    def __getitem__(self, index):
        note = self.without_heading(self.notes[index])
        words = WORD.findall(note)
        pairs = [f"{first} {second}" for first, second in pairwise(words)]
        buckets = [hash(one) % BUCKETS for one in (words + pairs)[: 2 * WORDS - 6]]
        buckets += [0] * (2 * WORDS - 6 - len(buckets))
        return torch.tensor(buckets), float("egg" in words)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(89)
    notes = Notes(write_notes(89), QUICK_HEADING if args.without else HEADING)
    loader = DataLoader(notes, batch_size=24, shuffle=True, num_workers=1)
    table = nn.EmbeddingBag(BUCKETS, 64)
    judge = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    model = nn.Sequential(table, judge)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for buckets, egg in loader:
            found = model(buckets).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(found, egg.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
