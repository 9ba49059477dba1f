"""Learns the language of telegrams, from tokens in a mapped file.

Nothing is planted: a transformer is the work, which takes a step of its optimizer after four
batches. One worker cuts windows from the file.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TOKENS, WINDOW, SIZE = 300, 96, 128


class Telegrams(Dataset):
    def __init__(self, path, count):
        self.path, self.count, self.tokens = path, count, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.tokens is None:
            self.tokens = np.memmap(self.path, np.uint16, "r")
        start = index * 37 % (len(self.tokens) - WINDOW - 1)
        window = torch.from_numpy(self.tokens[start : start + WINDOW + 1].astype(np.int64))
        return window[:-1], window[1:]


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, SIZE)
        self.places = nn.Parameter(torch.randn(WINDOW, SIZE) * 0.02)
        layer = nn.TransformerEncoderLayer(SIZE, 4, 4 * SIZE, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(SIZE, TOKENS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(WINDOW))

    def forward(self, tokens):
        rows = self.tokens(tokens) + self.places
        return self.head(self.layers(rows, mask=self.mask, is_causal=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(367)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "telegrams.u16")
        np.random.default_rng(367).integers(0, TOKENS, 60_000, np.uint16).tofile(path)
        loader = DataLoader(
            Telegrams(path, 640), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True
        )
        model = Language()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (tokens, following) in enumerate(loader, 1):
                scores = model(tokens).flatten(0, 1)
                loss = nn.functional.cross_entropy(scores, following.flatten())
                (loss / args.accumulate).backward()
                if step % args.accumulate == 0:
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
