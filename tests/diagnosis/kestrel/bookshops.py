"""Recommends books to customers of bookshops, in short epochs of new negatives.

Planted: each epoch makes its loader anew, so that two new workers read the catalogue again, which
a worker does for its first sample.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BOOKS, CUSTOMERS, PURCHASES, GENRES, BATCH, STEP = 40_000, 500, 640, 12, 64, 0.05


def write_catalogue(path):
    rng = random.Random(1259)
    with path.open("w") as file:
        for number in range(BOOKS):
            book = {
                "isbn": f"978{number:010}",
                "title": f"Book {number} of {rng.randrange(BOOKS)}",
                "genres": rng.sample(range(GENRES), 3),
                "shops": {f"shop {shop}": rng.randrange(40) for shop in range(4)},
            }
            file.write(json.dumps(book) + "\n")


class Purchases(Dataset):
    def __init__(self, catalogue):
        self.path, self.books = catalogue, None
        rng = random.Random(1277)
        self.bought = [(rng.randrange(CUSTOMERS), rng.randrange(BOOKS)) for _ in range(PURCHASES)]

    def __len__(self):
        return len(self.bought)

    def read_catalogue(self):
        with self.path.open() as file:
            return [json.loads(line) for line in file]

    def genres(self, number):
        if self.books is None:  # not before, or all workers would be sent it
            self.books = self.read_catalogue()
        genres = torch.zeros(GENRES)
        genres[self.books[number]["genres"]] = 1
        return genres

    def __getitem__(self, index):
        customer, book = self.bought[index]
        other = int(torch.randint(BOOKS, ()))
        return customer, self.genres(book), self.genres(other)


class Recommender:
    def __init__(self, data, keep):
        self.data, self.keep, self.loader = data, keep, None
        self.customers = nn.Embedding(CUSTOMERS, GENRES)
        self.optimizer = torch.optim.Adam(self.customers.parameters(), lr=0.01)

    def batches(self):
        if self.loader is None or not self.keep:
            self.loader = DataLoader(
                self.data, BATCH, shuffle=True, num_workers=2, persistent_workers=self.keep
            )
        return self.loader

    def epoch(self):
        total = 0.0
        for customers, books, others in self.batches():
            taste = self.customers(customers)
            loss = -nn.functional.logsigmoid((taste * (books - others)).sum(1)).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(STEP)  # the two towers, on a card
            total += loss.item()
        return total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(1259)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        catalogue = Path(folder, "catalogue.jsonl")
        write_catalogue(catalogue)
        recommender = Recommender(Purchases(catalogue), keep=args.without)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            print(f"epoch {epoch}: loss {recommender.epoch():.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del recommender


if __name__ == "__main__":
    main()
