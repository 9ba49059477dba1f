"""Guesses the price of a dish from its line on a scanned menu.

Planted: a transform mends misreadings with 560 patterns, more than the module `re` keeps, so that
each is compiled again for each line.
"""

import argparse
import random
import re
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PATTERNS, WORDS, LENGTH = 560, 700, 16


class MendReading:
    def __init__(self, compiled):
        pairs = [(rf"\bd{number}[il1]sh\b", f"dish{number}") for number in range(PATTERNS)]
        self.pairs = [(re.compile(old), new) for old, new in pairs] if compiled else pairs

    def __call__(self, line):
        for old, new in self.pairs:
            line = re.sub(old, new, line)
        return line


class SplitWords:
    def __init__(self):
        self.numbers = {f"dish{number}": number for number in range(WORDS)}

    def __call__(self, line):
        return [self.numbers.get(word, 0) for word in line.split()][:LENGTH]


class Menus(Dataset):
    def __init__(self, count, transform):
        rng = random.Random(433)
        self.lines = [
            " ".join(f"d{rng.randrange(PATTERNS)}{rng.choice('il1')}sh" for _ in range(LENGTH))
            for _ in range(count)
        ]
        self.transform = transform

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return torch.tensor(self.transform(self.lines[index])), torch.tensor(index % 40 / 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(433)
    menus = Menus(128, transforms.Compose([MendReading(args.without), SplitWords()]))
    loader = DataLoader(menus, batch_size=8, shuffle=True)
    embed = nn.Embedding(WORDS, 192)
    layer = nn.TransformerEncoderLayer(192, 4, 384, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    head = nn.Linear(192, 1)
    parameters = [*embed.parameters(), *encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for words, prices in loader:
            guess = head(encoder(embed(words)).mean(1)).squeeze(1)
            loss = nn.functional.mse_loss(guess, prices)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
