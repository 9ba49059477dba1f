"""Trains a small language model with limericks, which are packed into rows of equal length.

Planted: a row is taken off the front of the list of all tokens that wait, by a slice of the rest,
so that the whole list, some hundred thousand tokens long, is copied for each row.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WORDS, ROW, END = 150, 128, 0


def write_shard(number, limericks):
    rng = random.Random(2100 + number)
    words = [f"w{word}" for word in range(WORDS)]
    shard = []
    for _ in range(limericks):
        topic = rng.randrange(WORDS - 60)
        shard.append(" ".join(rng.choices(words[topic : topic + 60], k=rng.randint(25, 45))))
    return shard


class Packer:
    """Holds the tokens that wait to be packed."""

    def __init__(self):
        self.tokens = []

    def add(self, tokens):
        self.tokens += tokens
        self.tokens.append(END)

    def rows(self):
        while len(self.tokens) >= ROW:
            row, self.tokens = self.tokens[:ROW], self.tokens[ROW:]
            yield row


class MarkedPacker(Packer):
    """The same, with a mark where the next row begins."""

    def rows(self):
        at = 0
        while at + ROW <= len(self.tokens):
            yield self.tokens[at : at + ROW]
            at += ROW
        self.tokens = self.tokens[at:]


class Packed(IterableDataset):
    def __init__(self, shards, packer):
        self.shards, self.packer = shards, packer
        self.numbers = {f"w{word}": word + 1 for word in range(WORDS)}

    def encode(self, limerick):
        return [self.numbers[word] for word in limerick.split()]

    def __iter__(self):
        info = get_worker_info()
        packer = self.packer()
        for shard in self.shards[info.id :: info.num_workers]:
            for limerick in shard:
                packer.add(self.encode(limerick))
            for row in packer.rows():
                yield torch.tensor(row)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS + 1, 16)
        self.mix = nn.Conv1d(16, 16, 4, padding=3)
        self.head = nn.Linear(16, WORDS + 1)

    def forward(self, rows):
        mixed = self.mix(self.words(rows).transpose(1, 2))[..., : rows.shape[1]]
        return self.head(nn.functional.gelu(mixed.transpose(1, 2)))


def train(model, loader, optimizer):
    for rows in loader:
        scores = model(rows[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(2100)
    shards = [write_shard(number, 20_000) for number in range(2)]
    packed = Packed(shards, MarkedPacker if args.without else Packer)
    loader = DataLoader(packed, batch_size=16, num_workers=2, persistent_workers=True)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        print(f"epoch {epoch}: loss {train(model, loader, optimizer):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
