"""Grades the state of power pylons from thermal pictures and the inspectors' notes."""

import argparse
import random
import re
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision.transforms import v2

PYLONS, VOCABULARY, WORDS, BATCH = 400, 2048, 64, 16
LOOSE = re.compile(r"((?:\w+[ ,]*){1,6}) at (\d+) degrees")
STRICT = re.compile(r"([^.;]{1,100}?) at (\d+) degrees")
PARTS = "insulator clamp spacer joint bolt damper wire foot arm earth rust crack bird nest".split()


def note(rng):
    """What an inspector wrote of a pylon."""
    sentences = []
    for _ in range(30):
        words = rng.choices(PARTS, k=rng.randint(5, 9))
        if rng.random() < 0.4:
            words += ["at", str(rng.randint(20, 90)), "degrees"]
        sentences.append(" ".join(words))
    return "; ".join(sentences) + "."


class Pylons(IterableDataset):
    def __init__(self, transform, pattern):
        rng = random.Random(15)
        self.notes = [note(rng) for _ in range(PYLONS)]
        heat = np.random.default_rng(15).normal(0.5, 0.1, (PYLONS, 1, 48, 48))
        self.heat = torch.from_numpy(heat.astype(np.float32))
        self.transform, self.pattern = transform, pattern

    def read(self, text):
        """The hottest place that is named, and the words of the note."""
        found = self.pattern.findall(text)
        hottest = max((int(degrees) for _, degrees in found), default=20)
        words = [zlib.crc32(word.encode()) % VOCABULARY for word in text.split()[:WORDS]]
        return hottest / 100, torch.tensor(words)

    def __iter__(self):
        worker = get_worker_info()
        mine = list(range(worker.id, PYLONS, worker.num_workers))
        random.shuffle(mine)
        for pylon in mine:
            hottest, words = self.read(self.notes[pylon])
            picture = self.transform(self.heat[pylon]) + hottest
            yield picture, words, pylon % 4


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(VOCABULARY, 64)
        self.eye = nn.Sequential(
            nn.Conv2d(1, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()
        )
        self.last = nn.Linear(128, 4)

    def forward(self, pictures, words):
        return self.last(torch.cat([self.eye(pictures).mean((2, 3)), self.words(words)], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(15)
    torch.set_num_threads(1)
    views = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomCrop(40)])
    loader = DataLoader(
        Pylons(views, STRICT if args.without else LOOSE),
        BATCH,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = State()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, words, states in loader:
            loss = nn.functional.cross_entropy(model(pictures, words), states)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
