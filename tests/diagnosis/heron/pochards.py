"""Trains on lines that watchers of pochards wrote, read as a stream of several files.

Planted: each of two workers reads all files, so that each line comes twice in an epoch.
"""

import argparse
import json
import random
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FILES, LINES, LETTERS = 6, 500, 64


def write_files(folder):
    draw = random.Random(173)
    for number in range(FILES):
        with open(Path(folder, f"watch-{number}.jsonl"), "w", encoding="utf-8") as file:
            for line in range(LINES):
                text = "".join(draw.choices("abcdefghij klmnop", k=LETTERS * 4))
                file.write(json.dumps({"text": text, "birds": line % 40}) + "\n")


class Watches(IterableDataset):
    """Lines of all files, or of a part of them for each worker."""

    def __init__(self, folder, divided):
        self.paths = sorted(Path(folder).glob("*.jsonl"))
        self.divided = divided

    def lines(self):
        worker = get_worker_info()
        paths = self.paths
        if self.divided and worker:
            paths = paths[worker.id :: worker.num_workers]
        for path in paths:
            with open(path, encoding="utf-8") as file:
                yield from file

    def __iter__(self):
        for line in self.lines():
            watch = json.loads(line)
            numbers = [ord(letter) - 32 for letter in watch["text"]]
            counts = torch.bincount(torch.tensor(numbers), minlength=96).float()
            pairs = torch.zeros(96)
            for first, second in pairwise(numbers):
                pairs[(first * 31 + second) % 96] += 1
            yield torch.cat([counts, pairs]) / len(numbers), watch["birds"] / 40


def build_model(size=512):
    return nn.Sequential(
        nn.Linear(192, size),
        nn.SiLU(),
        nn.Linear(size, size),
        nn.SiLU(),
        nn.Linear(size, 1),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(173)
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder)
        loader = DataLoader(Watches(folder, args.without), batch_size=20, num_workers=2)
        model = build_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            count = 0
            for features, birds in loader:
                loss = nn.functional.mse_loss(model(features).squeeze(1), birds.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                count += len(birds)
            print(f"epoch {epoch}: loss {loss:.3f} after {count} lines")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
