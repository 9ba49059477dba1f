"""Trains a small language model with the tokens of chapters.

Planted: a default of the base class, made to debug the tokenizer, keeps where each token came from
with every sample, and the workers send these thousands of tuples along with each batch.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, LENGTH, CONTEXT = 2000, 400, 16


class Tokenized(Dataset):
    """Samples of numbers of tokens; with `keep_spans`, also (begin, end, word) of each token."""

    def __init__(self, words, keep_spans=True):
        self.words, self.keep_spans = words, keep_spans

    def sample(self, tokens):
        item = {"tokens": torch.from_numpy(tokens)}
        if self.keep_spans:
            begin, spans = 0, []
            for token in tokens.tolist():
                word = self.words[token]
                spans.append((begin, begin + len(word), f"{word}:{token}"))
                begin += len(word) + 1
            item["spans"] = spans
        return item


class Chapters(Tokenized):
    def __init__(self, count, words, **options):
        super().__init__(words, **options)
        rng = np.random.default_rng(1033)
        self.tokens = rng.zipf(1.4, count * LENGTH).clip(max=WORDS) - 1

    def __len__(self):
        return len(self.tokens) // LENGTH

    def __getitem__(self, index):
        return self.sample(self.tokens[index * LENGTH : (index + 1) * LENGTH])


def together(items):
    batch = {"tokens": torch.stack([item["tokens"] for item in items])}
    batch["spans"] = [item.get("spans", []) for item in items]
    return batch


class Next(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(WORDS, 32)
        self.head = nn.Linear(32, WORDS)

    def forward(self, contexts):
        return self.head(torch.relu(self.embedding(contexts)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1033)
    options = {"keep_spans": False} if args.without else {}
    letters = np.random.default_rng(7).integers(97, 123, (WORDS, 7), dtype=np.uint8)
    words = [bytes(row).decode() for row in letters]
    loader = DataLoader(
        Chapters(4000, words, **options), batch_size=32, shuffle=True, num_workers=2,
        persistent_workers=True, collate_fn=together,
    )  # fmt: skip
    model = Next()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in loader:
            tokens = batch["tokens"]
            starts = torch.randint(0, LENGTH - CONTEXT - 1, (4,)).tolist()
            contexts = torch.cat([tokens[:, start : start + CONTEXT] for start in starts])
            targets = torch.cat([tokens[:, start + CONTEXT] for start in starts])
            loss = nn.functional.cross_entropy(model(contexts), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
