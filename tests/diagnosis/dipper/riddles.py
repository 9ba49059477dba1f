"""Learns to go on with a riddle, letter by letter."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RIDDLES, LENGTH, BATCH = 1920, 96, 32
LETTERS = " abcdefghijklmnopqrstuvwxyz,.?'"
PARTS = ["what has", "a mouth", "but", "never", "speaks", "runs", "all night", "and", "no bed"]


class Riddles(Dataset):
    """Riddles from a book, cut to one length, and their letters one place further."""

    def __init__(self):
        rng = random.Random(77)
        self.numbers = {letter: number for number, letter in enumerate(LETTERS)}
        self.riddles = [" ".join(rng.choices(PARTS, k=24)) + "?" for _ in range(400)]

    def __len__(self):
        return RIDDLES

    def __getitem__(self, index):
        riddle = self.riddles[index % 400]
        begin = index // 400 * 5
        text = riddle[begin : begin + LENGTH + 1].ljust(LENGTH + 1)
        row = torch.tensor([self.numbers[letter] for letter in text])
        return row[:-1], row[1:]


class Next(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), width)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 3)
        self.last = nn.Linear(width, len(LETTERS))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, rows):
        seen = self.body(self.letters(rows) + self.places, self.mask, is_causal=True)
        return self.last(seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(77)
    loader = DataLoader(Riddles(), BATCH, shuffle=True)
    model = Next()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for rows, later in loader:
            loss = nn.functional.cross_entropy(model(rows).flatten(0, 1), later.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
