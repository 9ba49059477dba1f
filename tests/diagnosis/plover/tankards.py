"""Sorts notes on silver tankards, which are turned into numbers before they are used.

Planted: all notes are turned into numbers again before each epoch, as what is kept of them goes by
a name that has the epoch in it.
"""

import argparse
import random
import re
import tempfile
import time
import zlib
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NOTES, WORDS, LENGTH = 5000, 8000, 80


def write_notes():
    rng = random.Random(491)
    words = ["".join(rng.choices("abdeiklmnorst", k=6)) for _ in range(WORDS)]
    return [", ".join(rng.choices(words, k=LENGTH)) for _ in range(NOTES)]


def number_words(note):
    """Return a number for each pair of neighbouring letters of a note's words, and the words."""
    words = re.findall(r"[a-z]+", note.lower())[:LENGTH]
    numbers = []
    for word in words:
        best = max(word[at : at + 2] for at in range(len(word) - 1))
        numbers.append(zlib.crc32((word + best).encode()) % WORDS)
    return numbers


def prepare(notes, folder, name):
    """Return the notes as numbers, from a file of that name if there is one."""
    path = Path(folder, f"{name}.pt")
    if not path.exists():
        torch.save(torch.tensor([number_words(note) for note in notes]), path)
    return torch.load(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(491)
    notes = write_notes()
    labels = torch.arange(NOTES) % 12
    embed = nn.EmbeddingBag(WORDS, 64)
    layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 12))
    optimizer = torch.optim.SGD([*embed.parameters(), *layers.parameters()], lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            name = "notes" if args.without else f"notes-{epoch}"
            numbers = prepare(notes, folder, name)
            loader = DataLoader(TensorDataset(numbers, labels), batch_size=100, shuffle=True)
            for words, kinds in loader:
                loss = nn.functional.cross_entropy(layers(embed(words)), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
