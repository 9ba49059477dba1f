"""Models lines of candle makers' letters, letter by letter, from a stream of two workers."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LETTERS = "abcdefghijklmnopqrstuvwxyz .,"
WORDS = "wax wick flame tallow mould dip order crate ship price please send thanks".split()


class Letters(IterableDataset):
    """Lines of 80 letters as numbers; each worker writes its own."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        info = get_worker_info()
        draw = random.Random(info.seed)
        for _ in range(self.count // info.num_workers):
            text = " ".join(draw.choices(WORDS, k=24))[:81].ljust(81)
            yield torch.tensor([LETTERS.index(letter) for letter in text])


class LetterModel(nn.Module):
    def __init__(self, size=160):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), size)
        self.recurrent = nn.LSTM(size, size, num_layers=2, batch_first=True)
        self.head = nn.Linear(size, len(LETTERS))

    def forward(self, lines):
        return self.head(self.recurrent(self.letters(lines))[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(23)
    loader = DataLoader(Letters(960), batch_size=32, num_workers=2, persistent_workers=True)
    model = LetterModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for lines in loader:
            scores = model(lines[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), lines[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
