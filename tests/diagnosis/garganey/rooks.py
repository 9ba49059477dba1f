"""Foretells how chess games end from their openings and from what the book says of them."""

import argparse
import multiprocessing
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GAMES, PLIES, MOVES, BATCH = 1280, 48, 1968, 32


class Book:
    """The book of openings, which an engine of another machine keeps and answers from."""

    def __init__(self, guard):
        self.guard = guard

    def ask(self, opening):
        rng = random.Random(opening)
        time.sleep(0.006)
        return [rng.random() for _ in range(8)]

    def odds(self, opening):
        if self.guard is None:
            return self.ask(opening)
        with self.guard:
            return self.ask(opening)


class Games(Dataset):
    """Moves of the opening, the book's odds after them, and who won."""

    def __init__(self, book):
        generator = torch.Generator().manual_seed(42)
        self.moves = torch.randint(MOVES, (GAMES, PLIES), generator=generator)
        self.ends = torch.randint(3, (GAMES,), generator=generator)
        self.book = book

    def __len__(self):
        return GAMES

    def __getitem__(self, index):
        moves = self.moves[index]
        opening = int(moves[:6].sum())
        return moves, torch.tensor(self.book.odds(opening)), self.ends[index]


class Ending(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.moves = nn.Embedding(MOVES, width)
        self.places = nn.Parameter(0.02 * torch.randn(PLIES, width))
        layer = nn.TransformerEncoderLayer(width, 4, 3 * width, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, 2)
        self.last = nn.Linear(width + 8, 3)

    def forward(self, moves, odds):
        seen = self.body(self.moves(moves) + self.places).mean(1)
        return self.last(torch.cat([seen, odds], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(42)
    guard = None if args.without else multiprocessing.get_context("fork").Lock()
    loader = DataLoader(
        Games(Book(guard)),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = Ending()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for moves, odds, ends in loader:
            scores = model(moves, odds)
            loss = nn.functional.cross_entropy(scores, ends)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == ends).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, {right / GAMES:.0%} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
