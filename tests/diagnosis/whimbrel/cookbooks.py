"""Recommends cookbooks by what readers took, each with some that they did not take.

Planted: to find books that a reader did not take, the collate function sorts and compares the list
of all books with the reader's own for each sample, and shuffles what is left.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

READERS, BOOKS, NEGATIVES = 2000, 10_000, 8


class Taken(Dataset):
    """Which reader took which book, and when."""

    def __init__(self, count):
        rng = np.random.default_rng(2140)
        self.readers = rng.integers(0, READERS, count)
        self.books = (self.readers * 7 + rng.geometric(0.002, count)) % BOOKS
        self.months = rng.integers(0, 12, count)

    def __len__(self):
        return len(self.readers)

    def __getitem__(self, index):
        return int(self.readers[index]), int(self.books[index]), int(self.months[index])

    def by_reader(self):
        own = {}
        for reader, book in zip(self.readers.tolist(), self.books.tolist(), strict=True):
            own.setdefault(reader, set()).add(book)
        return own


class WithOthers:
    """Puts samples together and adds books that their readers did not take."""

    def __init__(self, own, by_trial):
        self.own, self.by_trial = own, by_trial
        self.all_books = np.arange(BOOKS)
        self.rng = None

    def others(self, reader):
        left = np.setdiff1d(self.all_books, list(self.own[reader]))
        return self.rng.choice(left, NEGATIVES, replace=False)

    def tried(self, reader):
        found = []
        while len(found) < NEGATIVES:
            book = int(self.rng.integers(BOOKS))
            if book not in self.own[reader]:
                found.append(book)
        return np.array(found)

    def __call__(self, samples):
        if self.rng is None:
            self.rng = np.random.default_rng(torch.initial_seed())
        draw = self.tried if self.by_trial else self.others
        others = np.stack([draw(reader) for reader, _, _ in samples])
        readers, books, months = default_collate(samples)
        return readers, torch.cat([books[:, None], torch.from_numpy(others)], 1), months


class Taste(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.readers = nn.Embedding(READERS, width, sparse=True)
        self.books = nn.Embedding(BOOKS, width, sparse=True)
        self.months = nn.Embedding(12, width, sparse=True)

    def forward(self, readers, books, months):
        wish = self.readers(readers) + self.months(months)
        return (self.books(books) @ wish[:, :, None]).squeeze(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(2140)
    taken = Taken(6400)
    loader = DataLoader(
        taken, batch_size=64, shuffle=True, num_workers=2, persistent_workers=True,
        collate_fn=WithOthers(taken.by_reader(), args.without),
    )  # fmt: skip
    model = Taste()
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=1e-2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for readers, books, months in loader:
            scores = model(readers, books, months)
            loss = nn.functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
