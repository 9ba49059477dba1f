"""Learns which animal a fable is about from its words, and prints the beginning of some.

Planted: a batch carries the vocabulary's method that turns numbers into words again, for whoever
wants to read it. With the method, the whole vocabulary is pickled for each batch.
"""

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, FABLES, LENGTH, ANIMALS, BATCH = 45_000, 1600, 60, 5, 32


class Vocabulary:
    def __init__(self):
        rng = random.Random(3083)
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = {"".join(rng.choices(letters, k=rng.randint(4, 11))) for _ in range(WORDS)}
        self.words = sorted(words)
        self.numbers = {word: number for number, word in enumerate(self.words)}

    def __len__(self):
        return len(self.words)

    def encode(self, words):
        return [self.numbers[word] for word in words]

    def decode(self, numbers):
        return " ".join(self.words[number] for number in numbers)


@dataclass
class Batch:
    numbers: torch.Tensor
    animals: torch.Tensor
    decode: Callable | None


class Fables(Dataset):
    """Fables as lists of words; those of one animal share some."""

    def __init__(self, vocabulary):
        rng = random.Random(3089)
        self.vocabulary = vocabulary
        self.animals = [rng.randrange(ANIMALS) for _ in range(FABLES)]
        own = [rng.sample(vocabulary.words, 200) for _ in range(ANIMALS)]
        self.fables = [
            [rng.choice(own[animal] if rng.random() < 0.2 else vocabulary.words)
             for _ in range(LENGTH)]
            for animal in self.animals
        ]  # fmt: skip

    def __len__(self):
        return FABLES

    def __getitem__(self, index):
        return torch.tensor(self.vocabulary.encode(self.fables[index])), self.animals[index]


class Together:
    def __init__(self, vocabulary, decode):
        self.vocabulary, self.decode = vocabulary, decode

    def __call__(self, samples):
        numbers, animals = zip(*samples, strict=True)
        decode = self.vocabulary.decode if self.decode else None
        return Batch(torch.stack(numbers), torch.tensor(animals), decode)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(3083)
    vocabulary = Vocabulary()
    loader = DataLoader(
        Fables(vocabulary),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        collate_fn=Together(vocabulary, decode=not args.without),
    )
    table = nn.EmbeddingBag(len(vocabulary), 64, sparse=True)
    head = nn.Linear(64, ANIMALS)
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.5)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in loader:
            loss = nn.functional.cross_entropy(head(table(batch.numbers)), batch.animals)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        decode = batch.decode or vocabulary.decode
        print(f"epoch {epoch}: loss {loss:.3f}: {decode(batch.numbers[0, :6].tolist())} ...")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
