"""Recommends pages by the bookmarks of people, with factors of people and pages.

Planted: the data set holds half a million bookmarks as Python objects, and the workers are spawned,
so that all of these are pickled and made anew for each worker before its first batch.
"""

import argparse
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BOOKMARKS, PEOPLE, PAGES, TAGS, BATCH, STEPS = 500_000, 5000, 20000, 12, 512, 60
STEP = 0.025


@dataclass
class Bookmark:
    person: int
    page: int
    when: float
    tags: list
    kept: bool


def collect():
    source = random.Random(5087)
    draw = source.random
    for _ in range(BOOKMARKS):
        person, page = int(draw() * PEOPLE), int(draw() * draw() * PAGES)
        tags = [int(draw() * TAGS), int(draw() * TAGS)]
        yield Bookmark(person, page, 1.7e9 + draw() * 1e7, tags, draw() < 0.3)


class Records(Dataset):
    def __init__(self):
        self.bookmarks = list(collect())

    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, index):
        found = self.bookmarks[(index * 15) % BOOKMARKS]
        return found.person, found.page, found.when % 86400 / 86400, float(found.kept)


class Columns(Dataset):
    def __init__(self):
        rows = [(b.person, b.page, b.when % 86400 / 86400, b.kept) for b in collect()]
        self.person, self.page = (np.array([row[k] for row in rows]) for k in (0, 1))
        self.hour = np.array([row[2] for row in rows])
        self.kept = np.array([row[3] for row in rows], dtype=float)

    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, index):
        place = (index * 15) % BOOKMARKS
        return tuple(part[place].item() for part in (self.person, self.page, self.hour, self.kept))


class Factors(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.people, self.pages = nn.Embedding(PEOPLE, size), nn.Embedding(PAGES, size)
        self.hour = nn.Linear(1, size)

    def forward(self, person, page, hour):
        taste = self.people(person) + self.hour(hour[:, None])
        return (taste * self.pages(page)).sum(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(5087)
    torch.set_num_threads(1)
    loader = DataLoader(
        Columns() if args.without else Records(),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Factors()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for number, (person, page, hour, kept) in enumerate(loader, 1):
            scores = model(person, page, hour.float())
            loss = nn.functional.binary_cross_entropy_with_logits(scores, kept.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the towers of the real model
            if number % 20 == 0:
                print(f"epoch {epoch}, step {number}: loss {loss:.4f}", flush=True)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
