"""Sorts spiders by the words of field notes, in batches of notes of like length.

Nothing planted: the transformer is the work; without workers, a batch sampler sorts the notes at
the beginning of each epoch, and a collate function pads nested lists.
"""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NOTES, WORDS, SPIDERS, WIDTH, BATCH = 448, 900, 8, 96, 16


class Notes(Dataset):
    """Notes as lists of numbers of words."""

    def __init__(self):
        rng = np.random.default_rng(131)
        self.lengths = rng.integers(30, 110, NOTES)
        self.notes = [rng.integers(1, WORDS, length).tolist() for length in self.lengths]
        self.spiders = rng.integers(0, SPIDERS, NOTES).tolist()

    def __len__(self):
        return NOTES

    def __getitem__(self, index):
        words = [word if random.random() > 0.1 else 0 for word in self.notes[index]]
        return {"text": {"words": words, "length": len(words)}, "spider": self.spiders[index]}


class AlikeInLength:
    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths) // BATCH

    def __iter__(self):
        noise = np.random.normal(0, 3, len(self.lengths))
        order = np.argsort(self.lengths + noise)
        batches = [order[at : at + BATCH].tolist() for at in range(0, len(order), BATCH)]
        random.shuffle(batches)
        return iter(batches)


def padded(samples):
    longest = max(sample["text"]["length"] for sample in samples)
    words = [
        sample["text"]["words"] + [0] * (longest - sample["text"]["length"]) for sample in samples
    ]
    words = torch.tensor(words)
    return {
        "text": {"words": words, "blank": words == 0},
        "spider": torch.tensor([sample["spider"] for sample in samples]),
    }


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, SPIDERS)

    def forward(self, text):
        codes = self.layers(self.embed(text["words"]), src_key_padding_mask=text["blank"])
        return self.head(codes.mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(131)
    random.seed(131)
    torch.set_num_threads(1)
    data = Notes()
    loader = DataLoader(data, batch_sampler=AlikeInLength(data.lengths), collate_fn=padded)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["text"]), batch["spider"])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
