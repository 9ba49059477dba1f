"""Sorts headlines by desk, and goes back to earlier weights if the loss should jump.

Planted: the guard against jumps copies all weights of the model after each step, a large table of
words among them; a worker cuts headlines into words beside that, which costs little.
"""

import argparse
import copy
import itertools
import random
import re
import time
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS, WIDTH, DESKS = 160_000, 64, 7
WORD = re.compile(r"[a-z]+")


def write_headlines(count):
    rng = random.Random(2190)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(9000)]
    headlines, desks = [], []
    for _ in range(count):
        desk = rng.randrange(DESKS)
        chosen = rng.choices(words[desk * 1000 : desk * 1000 + 3000], k=rng.randint(8, 14))
        headlines.append(" ".join(chosen).capitalize())
        desks.append(desk)
    return headlines, desks


class Headlines(Dataset):
    """Numbers of words and of pairs of words, which are hashed into a table."""

    def __init__(self, count):
        self.headlines, self.desks = write_headlines(count)

    def __len__(self):
        return len(self.headlines)

    def __getitem__(self, index):
        words = WORD.findall(self.headlines[index].lower())
        pairs = [" ".join(pair) for pair in itertools.pairwise(words)]
        numbers = [zlib.crc32(piece.encode()) % ROWS for piece in words + pairs]
        return (numbers + [0] * 28)[:28], self.desks[index]


def together(samples):
    numbers, desks = zip(*samples, strict=True)
    return torch.tensor(numbers), torch.tensor(desks)


class JumpGuard:
    """Keeps good weights, and puts them back when the loss has jumped."""

    def __init__(self, model, every, factor=5.0):
        self.model, self.every, self.factor = model, every, factor
        self.usual, self.kept, self.steps, self.returns = None, None, 0, 0

    def after_step(self, loss):
        self.usual = loss if self.usual is None else 0.95 * self.usual + 0.05 * loss
        if self.kept is not None and loss > self.factor * self.usual:
            self.model.load_state_dict(self.kept)
            self.returns += 1
        elif self.steps % self.every == 0:
            self.kept = copy.deepcopy(self.model.state_dict())
        self.steps += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(2190)
    loader = DataLoader(
        Headlines(9600), batch_size=64, shuffle=True, num_workers=1, collate_fn=together,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.ModuleDict(
        {"words": nn.EmbeddingBag(ROWS, WIDTH, sparse=True), "head": nn.Linear(WIDTH, DESKS)}
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    guard = JumpGuard(model, every=100 if args.without else 1)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for numbers, desks in loader:
            loss = nn.functional.cross_entropy(model["head"](model["words"](numbers)), desks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            guard.after_step(loss.item())
        print(f"epoch {epoch}: loss {loss:.3f}, returns {guard.returns}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
