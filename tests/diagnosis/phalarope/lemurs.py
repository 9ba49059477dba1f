"""Predicts the next words of field notes, in batches of notes of about one length.

Healthy: a transformer is the work. Notes are cut out of one array without workers, and a batch
sampler groups them by lengths that it knows.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

NOTES, WORDS, WIDTH, BATCH, PATIENCE = 320, 800, 96, 16, 3


class Notes(Dataset):
    def __init__(self):
        rng = np.random.default_rng(4133)
        self.lengths = rng.integers(40, 120, NOTES)
        self.ends = np.cumsum(self.lengths)
        self.words = rng.integers(1, WORDS, int(self.ends[-1]))
        self.words[1::2] = self.words[::2][: len(self.words[1::2])]

    def __len__(self):
        return NOTES

    def __getitem__(self, index):
        end = self.ends[index]
        return torch.from_numpy(self.words[end - self.lengths[index] : end])


class ByLength(Sampler):
    def __init__(self, lengths, batch):
        self.lengths, self.batch = lengths, batch

    def __len__(self):
        return len(self.lengths) // self.batch

    def __iter__(self):
        noisy = self.lengths + np.random.normal(0, 4, len(self.lengths))
        groups = np.argsort(noisy).reshape(-1, self.batch)
        np.random.shuffle(groups)
        yield from groups.tolist()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.out(self.layers(self.table(words), mask=mask, is_causal=True))


def collate(notes):
    return pad_sequence(notes, batch_first=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=14)
    args = parser.parse_args()
    torch.manual_seed(4133)
    np.random.seed(4133)
    data = Notes()
    loader = DataLoader(data, batch_sampler=ByLength(data.lengths, BATCH), collate_fn=collate)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, 20)
    best, since = float("inf"), 0
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for words in loader:
            guess = model(words[:, :-1]).flatten(0, 1)
            loss = nn.functional.cross_entropy(guess, words[:, 1:].flatten(), ignore_index=0)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            warm.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
        best, since = (total, 0) if total < best else (best, since + 1)
        if since == PATIENCE:
            break
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
