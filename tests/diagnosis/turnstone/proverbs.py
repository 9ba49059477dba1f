"""Trains a small transformer with proverbs, whose tokens lie in a mapped file.

Nothing is planted: the transformer is the work. Samples are cut from the map without workers, in
an order that a sampler of its own makes, and each tenth step is counted in a table.
"""

import argparse
import collections
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

WORDS, LENGTH, WIDTH = 900, 64, 128


class Proverbs(Dataset):
    def __init__(self, path):
        self.tokens = np.memmap(path, np.uint16, "r")

    def __len__(self):
        return (len(self.tokens) - 1) // LENGTH

    def __getitem__(self, index):
        begin = index * LENGTH
        tokens = self.tokens[begin : begin + LENGTH + 1].astype(np.int64)
        return torch.from_numpy(tokens[:-1]), torch.from_numpy(tokens[1:])


class Interleaved(Sampler):
    """Goes through the file in strides, so that neighbours are not in one batch."""

    def __init__(self, count, stride):
        self.count, self.stride = count, stride

    def __len__(self):
        return self.count

    def __iter__(self):
        for begin in torch.randperm(self.stride).tolist():
            yield from range(begin, self.count, self.stride)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 256, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, WORDS)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask)

    def forward(self, tokens):
        states = self.words(tokens) + self.places.weight
        return self.head(self.layers(states, mask=self.mask))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1069)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokens.bin")
        rng = np.random.default_rng(1069)
        (rng.zipf(1.5, 640 * LENGTH + 1).clip(max=WORDS) - 1).astype(np.uint16).tofile(path)
        proverbs = Proverbs(path)
        loader = DataLoader(proverbs, batch_size=16, sampler=Interleaved(len(proverbs), 20))
        model, seen = Transformer(), collections.Counter()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (tokens, following) in enumerate(loader):
                logits = model(tokens).flatten(0, 1)
                loss = nn.functional.cross_entropy(logits, following.flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % 10 == 0:
                    seen.update(tokens[0].tolist())
            print(f"epoch {epoch}: loss {loss:.3f}, {len(seen)} words seen")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
