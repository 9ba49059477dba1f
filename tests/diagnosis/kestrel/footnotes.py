"""Tells footnotes from other lines of a book, with a small transformer on the processor.

Nothing planted: the transformer is the work; one worker splits lines into words and pads batches
in Python ahead of it.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LINES, WORDS, BATCH, WIDTH = 768, 400, 32, 64


class Lines(Dataset):
    def __init__(self):
        rng = random.Random(1373)
        self.places = {f"word{number}": number + 1 for number in range(WORDS)}
        self.lines, self.notes = [], []
        for _ in range(LINES):
            note = rng.random() < 0.4
            words = rng.choices(list(self.places), k=rng.randrange(24, 48))
            self.lines.append(" ".join(["word7", *words] if note else words))
            self.notes.append(float(note))

    def __len__(self):
        return LINES

    def __getitem__(self, index):
        return [self.places[word] for word in self.lines[index].split()], self.notes[index]


def collate(samples):
    longest = max(len(words) for words, _ in samples)
    padded = [words + [0] * (longest - len(words)) for words, _ in samples]
    return torch.tensor(padded), torch.tensor([note for _, note in samples])


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS + 1, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, words):
        hidden = self.encoder(self.words(words), src_key_padding_mask=words == 0)
        return self.out(hidden.mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(1373)
    torch.set_num_threads(1)
    loader = DataLoader(
        Lines(), BATCH, shuffle=True, num_workers=1, collate_fn=collate, persistent_workers=True
    )
    reader = Reader()
    optimizer = torch.optim.AdamW(reader.parameters(), lr=5e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for words, notes in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(reader(words), notes)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
