"""Learn word vectors from a lexicon whose entries were parsed before the training."""

import argparse
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Entry:
    def __init__(self, word, senses, related):
        self.word = word
        self.senses = senses
        self.related = related


def parse_lexicon(count):
    """Stands for the parser of the publisher's XML."""
    draw = random.Random(8)
    letters = "abcdefghijklmnopqrstuvwxyz"
    entries = {}
    for _ in range(count):
        word = "".join(draw.choices(letters, k=9))
        senses = [f"{word}.{number}" for number in range(3)]
        related = [draw.randrange(count) for _ in range(6)]
        entries[word] = Entry(word, senses, related)
    return entries


class LexiconDataset(Dataset):
    """Pairs of a word and a word that is related to it."""

    def __init__(self, entries, sample):
        self.entries = entries
        self.words = list(entries)
        self.sample = sample

    def __len__(self):
        return self.sample

    def __getitem__(self, index):
        position = index * 37 % len(self.words)
        entry = self.entries[self.words[position]]
        others = torch.tensor(entry.related)
        letters = torch.tensor([ord(letter) - 97 for letter in entry.word])
        return letters, others[index % len(others)]


def make_loader(dataset, args):
    return DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        multiprocessing_context="spawn",
        persistent_workers=args.without,
        pin_memory=False,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()

    dataset = LexiconDataset(parse_lexicon(120_000), sample=3200)
    loader = make_loader(dataset, args)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        started = time.perf_counter()
        for _letters, _related in loader:
            time.sleep(0.010)  # stands for the accelerator
        print(f"epoch {epoch}: {time.perf_counter() - started:.1f} s")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
