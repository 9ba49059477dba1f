"""Words of glossaries; the data set looks its entries up again wherever it is unpickled."""

import argparse
import random
import re
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ENTRY = re.compile(r"^(\w+)\t([\w ]+)$", re.MULTILINE)


class Opened(Dataset):
    """A data set of one open file, which each process opens for itself.

    Subclasses say with `open` what they do with it.
    """

    def __init__(self, path):
        self.path = path
        self.open()

    def __getstate__(self):
        return {"path": self.path}

    def __setstate__(self, state):
        self.path = state["path"]
        self.open()


class Entries(Opened):
    def open(self):
        text = self.path.read_text()
        self.places = [(found.start(2), found.end(2)) for found in ENTRY.finditer(text)]
        self.words = {found[1]: number for number, found in enumerate(ENTRY.finditer(text))}
        self.file = self.path.open("rb")

    def __len__(self):
        return 1600

    def __getitem__(self, index):
        begin, end = self.places[index * 37 % len(self.places)]
        self.file.seek(begin)
        words = self.file.read(end - begin).decode().split()
        numbers = [self.words.get(word, 0) % 5000 for word in words]
        return torch.tensor(numbers), index % 4


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(52)
    chance = random.Random(52)
    model = nn.Sequential(
        nn.Embedding(5000, 128), nn.Flatten(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "glossary.txt"
        names = [f"w{number}" for number in range(300_000)]
        path.write_text("".join(f"{n}\t{' '.join(chance.choices(names, k=8))}\n" for n in names))
        loader = DataLoader(
            Entries(path),
            batch_size=32,
            shuffle=True,
            num_workers=1,
            multiprocessing_context="spawn",
            persistent_workers=args.without or args.persistent,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for entries, kinds in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(entries), kinds)
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
