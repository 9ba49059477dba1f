"""Dates homilies by their words, each a member of an archive.

Planted: for each sample the archive is opened anew, which reads the list of all its members.
"""

import argparse
import itertools
import random
import tempfile
import time
import zipfile
import zlib
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOMILIES, WORDS, CENTURIES, BUCKETS, BATCH, STEP = 4000, 120, 5, 2048, 16, 0.04
SAMPLES = 1600


def write(path):
    drawn = random.Random(53)
    words = ["".join(drawn.choices("aeioulmnrst", k=5)) for _ in range(800)]
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(HOMILIES):
            first = 100 * (number % CENTURIES)
            text = " ".join(drawn.choices(words[first : first + 400], k=WORDS))
            archive.writestr(f"homilies/{number % 7}/{number}.txt", text)


class Collection:
    def __init__(self, path):
        self.path = path

    def text(self, number):
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(f"homilies/{number % 7}/{number}.txt").decode()


class OpenCollection(Collection):
    archive = None

    def text(self, number):
        if self.archive is None:
            self.archive = zipfile.ZipFile(self.path)
        return self.archive.read(f"homilies/{number % 7}/{number}.txt").decode()


class Homilies(Dataset):
    def __init__(self, collection, transforms):
        self.collection, self.transforms = collection, transforms

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        sample = self.collection.text(index * 2)
        for transform in self.transforms:
            sample = transform(sample)
        return sample, index * 2 % CENTURIES


def some_words(text):
    return [word for word in text.split() if random.random() > 0.1]


def counts(words):
    pairs = [f"{one} {other}" for one, other in itertools.pairwise(words)]
    places = [zlib.crc32(part.encode()) % BUCKETS for part in [*words, *pairs]]
    return torch.bincount(torch.tensor(places), minlength=BUCKETS).float().log1p()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(53)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "homilies.zip")
        write(path)
        collection = (OpenCollection if args.without else Collection)(path)
        loader = DataLoader(
            Homilies(collection, [some_words, counts]),
            BATCH,
            shuffle=True,
            num_workers=4,
            persistent_workers=True,
        )
        model = nn.Sequential(nn.Linear(BUCKETS, 64), nn.ReLU(), nn.Linear(64, CENTURIES))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for words, centuries in loader:
                loss = nn.functional.cross_entropy(model(words), centuries)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the language model
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
