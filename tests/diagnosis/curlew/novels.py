"""Learns to write like a novelist, while a thread looks whether the model copies what it has read.

Planted: the thread compares what was written with all chapters by a table of edits in Python, most
of the time, and the training has to wait for the interpreter.
"""

import argparse
import random
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS, LENGTH, CHAPTERS = 28, 64, 900


class CopyCheck(threading.Thread):
    """Finds the passage that needs the fewest edits to become what the model has written."""

    def __init__(self, chapters, pause):
        super().__init__(daemon=True)
        self.chapters, self.pause, self.ended = chapters, pause, threading.Event()
        self.nearest = LENGTH

    def edits(self, left, right):
        row = list(range(len(right) + 1))
        for at, letter in enumerate(left, 1):
            before, row[0] = row[0], at
            for place, other in enumerate(right, 1):
                change = before + (letter != other)
                before = row[place]
                row[place] = min(before + 1, row[place - 1] + 1, change)
        return row[-1]

    def run(self):
        written = [random.randrange(LETTERS) for _ in range(LENGTH)]
        while not self.ended.wait(self.pause):
            for chapter in random.sample(self.chapters, 60):
                self.nearest = min(self.nearest, self.edits(written, chapter[:LENGTH]))


class Passages(Dataset):
    def __init__(self, chapters):
        self.chapters = chapters

    def __len__(self):
        return 2 * len(self.chapters)

    def __getitem__(self, index):
        chapter = self.chapters[index // 2]
        start = random.randrange(len(chapter) - LENGTH)
        passage = torch.tensor(chapter[start : start + LENGTH + 1])
        return passage[:-1], passage[1:]


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 48)
        self.memory = nn.GRU(48, 96, batch_first=True)
        self.head = nn.Linear(96, LETTERS)

    def forward(self, letters):
        return self.head(self.memory(self.letters(letters))[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(739)
    random.seed(739)
    chapters = [random.choices(range(LETTERS), k=400) for _ in range(CHAPTERS)]
    loader = DataLoader(Passages(chapters), batch_size=15, shuffle=True)
    model = Writer()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    check = CopyCheck(chapters, 20 if args.without else 0.01)
    check.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for letters, following in loader:
            loss = nn.functional.cross_entropy(model(letters).flatten(0, 1), following.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}, nearest {check.nearest}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    check.ended.set()
    check.join()


if __name__ == "__main__":
    main()
