"""Sentences in dialects, padded to one length by loops in the collate function."""

import argparse
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __init__(self, count=2400):
        rng = random.Random(2)
        self.rows = [
            torch.tensor([rng.randrange(1, 500) for _ in range(rng.randrange(40, 160))])
            for _ in range(count)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], index % 7


def pad_in_loops(batch):
    longest = max(len(tokens) for tokens, _ in batch)
    padded = torch.zeros(len(batch), longest, dtype=torch.long)
    mask = torch.zeros(len(batch), longest)
    for row, (tokens, _) in enumerate(batch):
        for column in range(len(tokens)):
            padded[row, column] = tokens[column]
            mask[row, column] = 1.0
    return padded, mask, torch.tensor([dialect for _, dialect in batch])


def pad_at_once(batch):
    padded = pad_sequence([tokens for tokens, _ in batch], batch_first=True)
    mask = (padded != 0).float()
    return padded, mask, torch.tensor([dialect for _, dialect in batch])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(500, 64)
        self.answer = nn.Linear(64, 7)

    def forward(self, tokens, mask):
        words = self.words(tokens) * mask.unsqueeze(-1)
        return self.answer(words.sum(1) / mask.sum(1, keepdim=True))


def run(without, epochs=5):
    torch.set_num_threads(1)
    collate = pad_at_once if without else pad_in_loops
    loader = DataLoader(
        Sentences(), batch_size=48, shuffle=True, num_workers=1, collate_fn=collate,
        persistent_workers=True,
    )  # fmt: skip
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(epochs):
        begin = time.perf_counter()
        for tokens, mask, dialects in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tokens, mask), dialects).backward()
            optimizer.step()
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    run(parser.parse_args().without)
