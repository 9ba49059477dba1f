"""Writes recipes for muffins word by word, in batches of similar length.

Healthy: attention is the work. A batch sampler sorts lengths and a collate function pads word by
word in Python, but both are quick, and two kept workers do the padding ahead.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

WORDS, WIDTH = 300, 96


class Recipes(Dataset):
    def __init__(self, count):
        draw = random.Random(103)
        self.texts = [
            [draw.randrange(1, WORDS) for _ in range(draw.randrange(24, 96))] for _ in range(count)
        ]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index]


class SimilarLengths(Sampler):
    """Batches of texts of similar length, in a new order each time."""

    def __init__(self, texts, size):
        self.texts, self.size = texts, size

    def __len__(self):
        return -(-len(self.texts) // self.size)

    def __iter__(self):
        order = sorted(
            range(len(self.texts)), key=lambda number: (len(self.texts[number]), random.random())
        )
        batches = [order[place : place + self.size] for place in range(0, len(order), self.size)]
        random.shuffle(batches)
        yield from batches


def pad(texts):
    longest = max(map(len, texts))
    rows = []
    for text in texts:
        row = list(text)
        while len(row) < longest:
            row.append(0)
        rows.append(row)
    return torch.tensor(rows)


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        hidden = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.out(self.layers(self.words(words), mask=hidden, is_causal=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(103)
    recipes = Recipes(1280)
    loader = DataLoader(
        recipes,
        batch_sampler=SimilarLengths(recipes.texts, 16),
        collate_fn=pad,
        num_workers=2,
        persistent_workers=True,
    )
    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for words in loader:
            out = model(words[:, :-1])
            target = words[:, 1:].flatten()
            loss = nn.functional.cross_entropy(out.flatten(0, 1), target, ignore_index=0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
