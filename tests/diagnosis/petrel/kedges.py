"""Learns from notes on kedge anchors, while a thread keeps a page for the browser up to date.

Planted: the thread writes the whole page anew in pure Python all the time, and the main process,
which makes the batches itself, has to share the interpreter with it.
"""

import argparse
import collections
import random
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = [f"{first}{second}" for first in "acdehlmnopst" for second in ("nk", "le", "ar", "ot")]
NUMBERS = {word: number for number, word in enumerate(WORDS)}


class Notes(Dataset):
    def __init__(self, count=2400):
        draw = random.Random(251)
        self.texts = [" ".join(draw.choices(WORDS, k=160)) for _ in range(count)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        counts = collections.Counter(self.texts[index].split())
        row = torch.zeros(len(WORDS))
        for word, count in counts.items():
            row[NUMBERS[word]] = count
        return row, float(counts["link"] > counts["ank"])


class Page(threading.Thread):
    """Keeps a page about the run, with a row for each step."""

    def __init__(self):
        super().__init__(daemon=True)
        self.losses, self.text, self.ended = [], "", threading.Event()

    def write(self):
        rows = []
        for number, loss in enumerate(self.losses[-2000:]):
            bar = "".join("#" if place < loss * 40 else "." for place in range(60))
            rows.append(f"<tr><td>{number}</td><td>{loss:.4f}</td><td>{bar}</td></tr>")
        self.text = "\n".join(rows)

    def run(self):
        while not self.ended.is_set():
            self.write()
            time.sleep(0.001)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(251)
    loader = DataLoader(Notes(), batch_size=30, shuffle=True)
    model = nn.Sequential(nn.Linear(len(WORDS), 128), nn.ReLU(), nn.Linear(128, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    page = Page()
    if not args.without:
        page.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for rows, labels in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(rows), labels.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            page.losses.append(loss.item())
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    page.ended.set()
    page.write()
    print(f"page of {len(page.text)} characters")


if __name__ == "__main__":
    main()
