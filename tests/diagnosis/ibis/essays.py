"""Grades essays of pupils, which two schools sent as one file each.

Planted: files are shared out among four workers, but there are only two files: two workers have
nothing to read, and the others wait for the archive one block at a time.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SCHOOLS, ESSAYS, BLOCK, WORDS, BATCH, ARCHIVE, STEP = 2, 320, 8, 90, 16, 0.09, 0.03


def write_essays(folder):
    draw = random.Random(919)
    vocabulary = [f"{a}{b}{c}" for a in "bdfgklm" for b in "aeiou" for c in "nrst"]
    for school in range(SCHOOLS):
        with Path(folder, f"school-{school}.jsonl").open("w") as file:
            for _ in range(ESSAYS):
                text = " ".join(draw.choices(vocabulary, k=WORDS))
                file.write(json.dumps({"text": text, "grade": draw.randrange(6)}) + "\n")


class Archive:
    """Reads blocks of essays from a tape robot's cache."""

    def __init__(self, folder):
        self.lines = {
            path: path.read_text().splitlines() for path in sorted(Path(folder).glob("*.jsonl"))
        }

    def blocks(self, path):
        return range(0, len(self.lines[path]), BLOCK)

    def read(self, path, start):
        time.sleep(ARCHIVE)
        return [json.loads(line) for line in self.lines[path][start : start + BLOCK]]


class Essays(IterableDataset):
    def __init__(self, folder, by_block):
        self.archive, self.by_block = Archive(folder), by_block

    def __len__(self):
        return SCHOOLS * ESSAYS

    def mine(self):
        worker = get_worker_info()
        files = list(self.archive.lines)
        if self.by_block:
            blocks = [(path, start) for path in files for start in self.archive.blocks(path)]
            return blocks[worker.id :: worker.num_workers]
        files = files[worker.id :: worker.num_workers]
        return [(path, start) for path in files for start in self.archive.blocks(path)]

    def __iter__(self):
        for path, start in self.mine():
            for essay in self.archive.read(path, start):
                ids = [hash_of(word) for word in essay["text"].split()]
                yield torch.tensor(ids), essay["grade"]


def hash_of(word):
    value = 0
    for letter in word:
        value = (value * 31 + ord(letter)) % 2048
    return value


class Grader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(2048, 32)
        self.out = nn.Linear(32, 6)

    def forward(self, essays):
        time.sleep(STEP)  # a language model on an accelerator
        return self.out(self.words(essays).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(919)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_essays(folder)
        loader = DataLoader(
            Essays(folder, by_block=args.without), BATCH, num_workers=4, persistent_workers=True
        )
        model = Grader()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for essays, grades in loader:
                loss = nn.functional.cross_entropy(model(essays), grades)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(grades)
            print(f"epoch {epoch}: loss {total / SCHOOLS / ESSAYS:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
