"""Writes haikus: a small transformer on the processor learns the next letter.

Nothing planted: the transformer is the work; the main process itself cuts pieces from a text in
memory and fills them up to one length, and a line of the log is written at each step.
"""

import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("haikus")
LETTERS, LONGEST, WIDTH, BATCH, STEPS = 40, 64, 96, 12, 45


class Haikus(Dataset):
    def __init__(self):
        rng = np.random.default_rng(5179)
        self.text = torch.from_numpy(rng.zipf(1.4, 60_000) % (LETTERS - 1) + 1)
        self.starts = rng.integers(0, len(self.text) - LONGEST - 1, BATCH * STEPS)
        self.lengths = rng.integers(LONGEST // 2, LONGEST, BATCH * STEPS)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        start = self.starts[index]
        return self.text[start : start + self.lengths[index] + 1]


def fill(pieces):
    batch = torch.zeros(len(pieces), LONGEST + 1, dtype=torch.long)
    for row, piece in zip(batch, pieces, strict=True):
        row[: len(piece)] = piece
    return batch


class Poet(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH, padding_idx=0)
        self.places = nn.Parameter(torch.zeros(LONGEST, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, LETTERS)
        mask = nn.Transformer.generate_square_subsequent_mask(LONGEST)
        self.register_buffer("mask", mask)

    def forward(self, text):
        hidden = self.letters(text) + self.places
        return self.out(self.layers(hidden, mask=self.mask, is_causal=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(5179)
    loader = DataLoader(Haikus(), BATCH, shuffle=True, collate_fn=fill)
    poet = Poet()
    optimizer = torch.optim.AdamW(poet.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for number, text in enumerate(loader):
            scores = poet(text[:, :-1])
            loss = nn.functional.cross_entropy(
                scores.flatten(0, 1), text[:, 1:].flatten(), ignore_index=0
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(poet.parameters(), 1.0)
            optimizer.step()
            log.info("epoch %d, step %d: loss %.3f", epoch, number, loss.item())
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
