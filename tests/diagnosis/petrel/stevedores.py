"""Tells which crates stevedores will drop, with a longer list of crates every epoch.

Planted: a new loader each epoch starts two workers, each of which builds its vocabulary again.
"""

import argparse
import itertools
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

WORDS = [f"{first}{second}" for first in "bdfgklmnprst" for second in ("ar", "el", "on", "ix")]


def write_labels(count):
    draw = random.Random(227)
    return [" ".join(draw.choices(WORDS, k=12)) for _ in range(count)]


class Vocabulary:
    """Numbers for the pairs of words that come often."""

    def __init__(self, labels, size=2000):
        counts = {}
        for label in labels:
            words = label.split()
            for pair in itertools.pairwise(words):
                counts[pair] = counts.get(pair, 0) + 1
        common = sorted(counts, key=counts.get, reverse=True)[: size - 1]
        self.numbers = {pair: number for number, pair in enumerate(common, 1)}

    def encode(self, label):
        words = label.split()
        pairs = itertools.pairwise(words)
        return torch.tensor([self.numbers.get(pair, 0) for pair in pairs])


class Crates(Dataset):
    def __init__(self, labels, vocabulary=None):
        self.labels, self.vocabulary = labels, vocabulary
        self.shown = 400

    def __len__(self):
        return self.shown

    def __getitem__(self, index):
        label = self.labels[index % len(self.labels)]
        return self.vocabulary.encode(label), float("barn" in label.replace(" ", ""))


def set_up_worker(_):
    crates = get_worker_info().dataset
    if crates.vocabulary is None:
        crates.vocabulary = Vocabulary(crates.labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(227)
    labels = write_labels(40_000)
    crates = Crates(labels, Vocabulary(labels) if args.without else None)
    model = nn.Sequential(nn.EmbeddingBag(2000, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        crates.shown = 400 + 80 * epoch
        loader = DataLoader(
            crates,
            batch_size=40,
            shuffle=True,
            num_workers=0 if args.without else 2,
            worker_init_fn=set_up_worker,
        )
        for pairs, dropped in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(pairs), dropped.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {crates.shown} crates, loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
