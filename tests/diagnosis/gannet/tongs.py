"""Sorts reports of smiths by the tongs that they used; the words are counted before the training.

Planted: the vocabulary is a list, which is searched for each word of all reports, so that getting
ready takes longer than the training.
"""

import argparse
import random
import time
from collections import Counter

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

REPORTS, WORDS_OF_REPORT, KINDS = 2_400, 60, 12


def reports():
    draw = random.Random(521)
    parts = [a + b for a in ("fla", "bo", "ri", "sco", "ta", "gru", "he") for b in "bdglmnrstvz"]
    for number in range(REPORTS):
        words = [
            parts[int(draw.random() ** 2 * len(parts))] + draw.choice(parts)
            for _ in range(WORDS_OF_REPORT)
        ]
        yield " ".join(words), number % KINDS


class Vocabulary:
    """Numbers for words, in the order in which they first came."""

    def __init__(self, quick):
        self.words, self.counts = [], Counter()
        self.numbers = {} if quick else None

    def number(self, word):
        self.counts[word] += 1
        if self.numbers is not None:
            if word not in self.numbers:
                self.numbers[word] = len(self.words)
                self.words.append(word)
            return self.numbers[word]
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)


class Reports(Dataset):
    def __init__(self, vocabulary):
        self.rows = [
            (torch.tensor([vocabulary.number(word) for word in text.split()]), kind)
            for text, kind in reports()
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        words, kind = self.rows[index]
        hidden = torch.rand(len(words)) < 0.1
        return words.masked_fill(hidden, 0), kind


class Kinds(nn.Module):
    def __init__(self, words, size=48):
        super().__init__()
        self.table = nn.EmbeddingBag(words, size, mode="mean")
        self.head = nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, KINDS))

    def forward(self, words):
        return self.head(self.table(words))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(521)
    begin = time.perf_counter()
    vocabulary = Vocabulary(quick=args.without)
    loader = DataLoader(Reports(vocabulary), batch_size=60, shuffle=True)
    print(f"{len(vocabulary.words)} words, {vocabulary.counts.most_common(1)[0][0]} most often")
    model = Kinds(len(vocabulary.words))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        right = 0
        for words, kinds in loader:
            scores = model(words)
            loss = nn.functional.cross_entropy(scores, kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == kinds).sum().item()
        print(f"epoch {epoch}: {right} of {REPORTS} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
