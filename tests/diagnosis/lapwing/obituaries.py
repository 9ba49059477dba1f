"""Sorts obituaries by profession; the texts are asked for from the archive of a newspaper.

Planted: one request in 140 takes most of a second, and as batches are given out in order, with two
a worker ahead, those of the other workers lie ready while the loop waits for the slow one.
"""

import argparse
import random
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TEXTS, WORDS, VOCABULARY, PROFESSIONS, BATCH, STEP = 1280, 120, 5000, 8, 16, 0.035
USUAL, RARE, SHARE = 0.003, 0.8, 1 / 140


class Newspaper:
    """The archive, which keeps its texts compressed."""

    def __init__(self):
        rng = np.random.default_rng(5077)
        words = [f"w{number:x}" for number in range(VOCABULARY)]
        self.texts = []
        for _ in range(64):
            text = " ".join(words[place] for place in rng.zipf(1.3, WORDS) % VOCABULARY)
            self.texts.append(zlib.compress(text.encode()))

    def request(self, number):
        time.sleep(RARE if random.random() < SHARE else USUAL)
        return zlib.decompress(self.texts[number % len(self.texts)]).decode()


class Obituaries(Dataset):
    def __init__(self, newspaper):
        self.newspaper = newspaper

    def __len__(self):
        return TEXTS

    def tokens(self, text):
        return [int(word[1:], 16) for word in text.split()]

    def __getitem__(self, index):
        tokens = self.tokens(self.newspaper.request(index))
        return torch.tensor(tokens), index % PROFESSIONS


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(VOCABULARY, 48, mode="mean")
        self.out = nn.Linear(48, PROFESSIONS)

    def forward(self, texts):
        return self.out(self.words(texts))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5077)
    torch.set_num_threads(1)
    options = {"in_order": False} if args.without else {}
    loader = DataLoader(
        Obituaries(Newspaper()),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        **options,
    )
    model = Sorter()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = seen = 0
        for texts, professions in loader:
            scores = model(texts)
            loss = nn.functional.cross_entropy(scores, professions)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # a large encoder on an accelerator
            right += (scores.argmax(1) == professions).sum().item()
            seen += len(professions)
            if seen % 320 == 0:
                print(f"epoch {epoch}: {seen} texts, {right / seen:.2f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
