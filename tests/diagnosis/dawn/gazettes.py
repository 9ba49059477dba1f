"""Articles of gazettes: each epoch goes on where the last one ended, by reading up to there."""

import argparse
import gzip
import itertools
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WORDS = ("court", "flood", "grain", "horse", "letter", "market", "parish", "ship", "vote", "wool")


def write_articles(folder, shards=2, lines=16_000):
    chance = random.Random(2)
    for shard in range(shards):
        with gzip.open(Path(folder, f"{shard}.gz"), "wt", compresslevel=1) as file:
            for _ in range(lines):
                file.write(" ".join(chance.choices(WORDS, k=48)) + "\n")


class Articles(IterableDataset):
    def __init__(self, folder, per_epoch, wait):
        self.folder, self.per_epoch, self.read_on, self.epoch = folder, per_epoch, not wait, 0
        self.lines = None

    def parsed(self):
        with gzip.open(Path(self.folder, f"{get_worker_info().id}.gz"), "rt") as file:
            for line in file:
                numbers = [WORDS.index(word) for word in line.split()]
                yield torch.tensor(numbers)

    def __iter__(self):
        if self.read_on:
            self.lines = self.lines or self.parsed()
            yield from itertools.islice(self.lines, self.per_epoch)
        else:
            begin = self.epoch * self.per_epoch
            yield from itertools.islice(self.parsed(), begin, begin + self.per_epoch)
        self.epoch += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory() as folder:
        write_articles(folder)
        data = Articles(folder, per_epoch=640, wait=not args.without)
        loader = DataLoader(data, batch_size=32, num_workers=2, persistent_workers=True)
        model = nn.Sequential(nn.EmbeddingBag(len(WORDS), 64), nn.Linear(64, len(WORDS)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for articles in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(articles[:, :-1]), articles[:, -1]).backward()
                optimizer.step()
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
