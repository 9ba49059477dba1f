"""Learns to tell how a story ends, from an archive with one story a line.

Planted: each worker reads and splits all stories of the archive, and only then leaves out those
that are not its own.
"""

import argparse
import gzip
import itertools
import json
import random
import re
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

STORIES, WORDS, KEPT, BUCKETS = 5000, 420, 96, 5000
WORD = re.compile(r"[a-z]+|[.,]")


def write_archive(path):
    rng = random.Random(863)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 8))) for _ in range(900)]
    with gzip.open(path, "wt", compresslevel=1) as file:
        for number in range(STORIES):
            text = " ".join(rng.choices(words, k=WORDS)) + "."
            file.write(json.dumps({"text": text, "end": number % 2}) + "\n")


class Stories(IterableDataset):
    def __init__(self, path, early):
        self.path, self.early = path, early

    def own(self, items):
        info = get_worker_info()
        return itertools.islice(items, info.id, None, info.num_workers) if info else items

    def split(self, line):
        story = json.loads(line)
        counts = {}
        for word in WORD.findall(story["text"].lower()):
            counts[word] = counts.get(word, 0) + 1
        common = sorted(counts, key=lambda word: (-counts[word], word))[:KEPT]
        places = [sum(map(ord, word)) * len(word) % BUCKETS for word in common]
        return torch.tensor(places), story["end"]

    def __iter__(self):
        with gzip.open(self.path, "rt") as file:
            if self.early:
                yield from map(self.split, self.own(file))
            else:
                yield from self.own(map(self.split, file))


class Ending(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(BUCKETS, 48)
        self.head = nn.Linear(48, 2)

    def forward(self, places):
        return self.head(self.words(places))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(863)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stories.jsonl.gz")
        write_archive(path)
        loader = DataLoader(
            Stories(path, args.without), batch_size=24, num_workers=2,
            multiprocessing_context="forkserver", persistent_workers=True,
        )  # fmt: skip
        model = Ending()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for places, ends in loader:
                loss = nn.functional.cross_entropy(model(places), ends)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
