"""Learns the next letter of old scrolls, from compressed files that two workers read in a stream.

Planted: the base class deals the files out to the workers, but the class that shuffles reads all
of them by itself, so that each letter comes twice in an epoch.
"""

import argparse
import gzip
import json
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FILES, LINES, LETTERS, CONTEXT, BATCH, SHELF, STEP = 16, 40, 28, 48, 16, 0.012, 0.05


class Scrolls(IterableDataset):
    """The lines of all files; each worker has files of its own."""

    def __init__(self, folder):
        self.paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))

    def mine(self):
        info = get_worker_info()
        return self.paths[info.id :: info.num_workers] if info else self.paths

    def lines(self, path):
        with gzip.open(path, "rt") as file:
            for line in file:
                time.sleep(SHELF)  # the library's server
                yield json.loads(line)

    def letters(self, line):
        codes = [(ord(letter) - 97) % LETTERS for letter in line["text"]]
        return torch.tensor(codes[:CONTEXT]), torch.tensor(codes[1 : CONTEXT + 1])

    def __iter__(self):
        for path in self.mine():
            yield from map(self.letters, self.lines(path))


class Shuffled(Scrolls):
    """The lines of files in a new order, mixed in a buffer."""

    def __init__(self, folder, size=32, simple=False):
        super().__init__(folder)
        self.size, self.simple = size, simple

    def __iter__(self):
        paths = list(self.mine() if self.simple else self.paths)
        random.shuffle(paths)
        buffer = []
        for path in paths:
            for line in self.lines(path):
                if len(buffer) < self.size:
                    buffer.append(line)
                    continue
                place = random.randrange(self.size)
                line, buffer[place] = buffer[place], line
                yield self.letters(line)
        random.shuffle(buffer)
        yield from map(self.letters, buffer)


def write(folder):
    rng = random.Random(97)
    for number in range(FILES):
        with gzip.open(os.path.join(folder, f"scroll{number:02}.gz"), "wt") as file:
            for place in range(LINES):
                text = "".join(rng.choices("abcdefghijklmnop", k=CONTEXT + 1))
                file.write(json.dumps({"scroll": number, "line": place, "text": text}) + "\n")


class Letters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(LETTERS, 24)
        self.past = nn.GRU(24, 32, batch_first=True)
        self.head = nn.Linear(32, LETTERS)

    def forward(self, letters):
        return self.head(self.past(self.embed(letters))[0]).transpose(1, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(97)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        data = Shuffled(folder, simple=args.without)
        loader = DataLoader(data, BATCH, num_workers=2, persistent_workers=True)
        model = Letters()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (letters, following) in enumerate(loader):
                loss = nn.functional.cross_entropy(model(letters), following)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of a larger model on an accelerator
                if step % 20 == 19:
                    print(f"epoch {epoch}, step {step + 1}: loss {loss:.3f}", flush=True)
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
