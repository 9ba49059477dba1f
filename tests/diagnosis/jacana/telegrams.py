"""Dates old telegrams by the words that they use.

Planted: two workers are spawned anew for each epoch, and each of them gets the large data set
pickled, words, notes and all.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TELEGRAMS, LENGTH, WORDS, BATCH, STEP = 50_000, 20, 2000, 32, 0.06
TAKEN, DECADES = 704, 6


class Telegrams(Dataset):
    """All telegrams of the archive, of which each epoch takes some."""

    def __init__(self):
        rng = np.random.default_rng(1031)
        numbers = rng.integers(0, WORDS, (TELEGRAMS, LENGTH)).tolist()
        self.texts = [[f"word{number}" for number in line] for line in numbers]
        self.notes = [{"box": n % 97, "clerk": f"clerk {n % 31}"} for n in range(TELEGRAMS)]
        self.places = {f"word{number}": number for number in range(WORDS)}
        self.decades = [sum(line) % DECADES for line in numbers]

    def __len__(self):
        return TELEGRAMS

    def __getitem__(self, index):
        words = [self.places.get(word, 0) for word in self.texts[index]]
        if self.notes[index]["box"] % 2:
            words.reverse()
        return torch.tensor(words), self.decades[index]


class Some(torch.utils.data.Sampler):
    """Takes some telegrams for an epoch, as many of each decade."""

    def __init__(self, decades):
        decades = torch.tensor(decades)
        self.groups = [(decades == decade).nonzero().flatten() for decade in range(DECADES)]

    def __len__(self):
        return TAKEN

    def __iter__(self):
        each = TAKEN // DECADES + 1
        drawn = [group[torch.randperm(len(group))[:each]] for group in self.groups]
        yield from torch.stack(drawn, 1).flatten()[:TAKEN].tolist()


class Dating(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, 48)
        self.out = nn.Linear(48, DECADES)

    def forward(self, words):
        time.sleep(STEP)  # the language model, on a card
        return self.out(self.words(words))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1031)
    torch.set_num_threads(1)
    data = Telegrams()
    loader = DataLoader(
        data,
        BATCH,
        sampler=Some(data.decades),
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=args.without,
    )
    model = Dating()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for words, decades in loader:
                scores = model(words)
                loss = nn.functional.cross_entropy(scores, decades, label_smoothing=0.1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (scores.argmax(1) == decades).sum().item()
            print(f"epoch {epoch}: loss {loss:.3f}, right {right / TAKEN:.3f}")
            torch.save(model.state_dict(), Path(folder, f"dating-{epoch}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
