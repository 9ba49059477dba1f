"""Learns which dumpling a recipe makes, from pairs of letters.

Planted: the pairs are counted where the module is imported, which each spawned worker does again
before it begins, and each epoch spawns new workers.
"""

import argparse
import collections
import itertools
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECIPES, LENGTH, PAIRS, KINDS = 12_000, 160, 400, 5


def made_up_recipes():
    rng = random.Random(757)
    letters = "abcdefghijklmnopqrstuvwxyz "
    return ["".join(rng.choices(letters, k=LENGTH)) for _ in range(RECIPES)]


def count_pairs(recipes):
    counts = collections.Counter()
    for recipe in recipes:
        for left, right in itertools.pairwise(recipe):
            counts[left + right] += 1
    return {pair: place for place, (pair, _) in enumerate(counts.most_common(PAIRS))}


TEXTS = made_up_recipes()
PLACES = count_pairs(TEXTS)


class Recipes(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        text = TEXTS[index]
        found = torch.zeros(PAIRS)
        for start in range(LENGTH - 1):
            place = PLACES.get(text[start : start + 2])
            if place is not None:
                found[place] += 1
        return found, len(text.split()) % KINDS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(757)
    loader = DataLoader(
        Recipes(1000), batch_size=20, shuffle=True, num_workers=2,
        multiprocessing_context="spawn", persistent_workers=args.without,
    )  # fmt: skip
    model = nn.Sequential(nn.Linear(PAIRS, 256), nn.ReLU(), nn.Linear(256, KINDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pairs, kinds in loader:
            loss = nn.functional.cross_entropy(model(pairs), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
