"""Recommends books to readers by what they borrowed last, with the covers as a hint."""

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

READERS, BOOKS, LOANS, LAST, COVER, BATCH = 3000, 800, 280_000, 20, 48, 32


def write(path, indexed):
    rng = np.random.default_rng(55)
    rows = zip(
        rng.integers(READERS, size=LOANS).tolist(),
        rng.integers(BOOKS, size=LOANS).tolist(),
        rng.permutation(LOANS).tolist(),
        strict=True,
    )
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE loans (reader INTEGER, book INTEGER, day INTEGER)")
        database.executemany("INSERT INTO loans VALUES (?, ?, ?)", rows)
        if indexed:
            database.execute("CREATE INDEX of_reader ON loans (reader, day)")
    database.close()


class Library:
    """The loans; each process has a connection of its own."""

    def __init__(self, path):
        self.path, self.database = path, None

    def __getstate__(self):
        return {"path": self.path, "database": None}

    def last(self, reader):
        if self.database is None:
            self.database = sqlite3.connect(self.path)
        found = self.database.execute(
            "SELECT book FROM loans WHERE reader = ? ORDER BY day DESC LIMIT ?", (reader, LAST + 1)
        )
        return [book for (book,) in found]


class Readers(Dataset):
    def __init__(self, library, covers, readers):
        self.library, self.covers, self.readers = library, covers, readers
        self.change = transforms.Compose(
            [
                transforms.RandomHorizontalFlip(),
                transforms.ColorJitter(brightness=0.1),
                transforms.ToTensor(),
                transforms.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return len(self.readers)

    def __getitem__(self, index):
        newest, *before = self.library.last(int(self.readers[index]))
        before = torch.tensor(before + [BOOKS] * (LAST - len(before)))
        return before, self.change(Image.fromarray(self.covers[newest])), newest


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.books = nn.EmbeddingBag(BOOKS + 1, 64, padding_idx=BOOKS)
        self.cover = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(128, BOOKS)

    def forward(self, before, cover):
        return self.head(torch.cat([self.books(before), self.cover(cover)], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(55)
    torch.set_num_threads(1)
    rng = np.random.default_rng(56)
    covers = rng.integers(256, size=(BOOKS, COVER, COVER, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "loans.db"
        write(path, args.without)
        readers = Readers(Library(path), covers, rng.choice(READERS, 640, replace=False))
        loader = DataLoader(
            readers,
            BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
            multiprocessing_context="spawn",
        )
        model = Recommender()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for before, cover, newest in loader:
                loss = nn.functional.cross_entropy(model(before, cover), newest)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(0.02)  # the accelerator's work
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
