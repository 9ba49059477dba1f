"""Continues limericks, letter by letter, with a small transformer on the processor.

Nothing planted: the transformer, with the threads that torch gives it, is the work; windows are cut
out of a tensor in memory without workers.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS, TEXT, WINDOW, WINDOWS, WIDTH, BATCH = 40, 60_000, 96, 384, 160, 16


class Windows(Dataset):
    def __init__(self):
        self.text = torch.randint(LETTERS, (TEXT,), generator=torch.Generator().manual_seed(71))

    def __len__(self):
        return WINDOWS

    def __getitem__(self, index):
        start = index * 90 + int(torch.randint(80, ()))
        return self.text[start : start + WINDOW], self.text[start + 1 : start + WINDOW + 1]


class Poet(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Parameter(torch.zeros(WINDOW, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.following = nn.Linear(WIDTH, LETTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(WINDOW))

    def forward(self, letters):
        return self.following(self.layers(self.letters(letters) + self.places, mask=self.mask))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(71)
    loader = DataLoader(Windows(), BATCH, shuffle=True)
    model = Poet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for letters, following in loader:
            scores = model(letters)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
