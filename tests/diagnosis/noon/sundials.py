"""Verses from sundials, letter by letter: a stream of ready batches, and as many as we want."""

import argparse
import itertools
import random
import re
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

LETTERS = "abcdefghijklmnopqrstuvwxyz .,;"
WORDS = "sun shade hour light noon time dial shadow serene day count only the i do not but".split()


class Verses(IterableDataset):
    """Batches of 128 windows of letters (128, 49); a book is read again now and then."""

    def __init__(self, seed=25):
        self.seed = seed

    def book(self, chance, words=6000):
        text = " ".join(chance.choices(WORDS, k=words))
        text = re.sub(r"\b(noon|day)\b", r"\1, ", text.lower())
        text = re.sub(r"[^a-z .,;]", "", text)
        return torch.tensor([LETTERS.index(letter) for letter in text])

    def __iter__(self):
        chance = random.Random(self.seed)
        for number in itertools.count():
            if number % 25 == 0:
                letters = self.book(chance)
            begins = [chance.randrange(len(letters) - 50) for _ in range(128)]
            yield torch.stack([letters[begin : begin + 49] for begin in begins])


class Writer(nn.Module):
    def __init__(self, size=192):
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS), 48)
        self.layers = nn.LSTM(48, size, num_layers=2, batch_first=True)
        self.head = nn.Linear(size, len(LETTERS))

    def forward(self, letters):
        return self.head(self.layers(self.embedding(letters))[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(25)
    loader = DataLoader(Verses(), batch_size=None, num_workers=1, prefetch_factor=4)
    model = Writer()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for step, letters in enumerate(itertools.islice(loader, args.steps), 1):
        scores = model(letters[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), letters[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
