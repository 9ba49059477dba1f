"""Sorts notes on tadpoles by the pond they are from, in batches of texts of like length.

Planted: to learn how long the texts are, the sampler gets each sample from the data set at the
start of each epoch, in the main process, where all are split into words for it.
"""

import argparse
import random
import re
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

WORDS, PONDS, PIECES = 1200, 6, re.compile(r"\w+|[^\w\s]")


def write_notes(count):
    rng = random.Random(1091)
    words = ["".join(rng.choices("aeioubdlnprst", k=rng.randint(2, 8))) for _ in range(WORDS)]
    notes, ponds = [], []
    for _ in range(count):
        pond, length = rng.randrange(PONDS), rng.randint(40, 240)
        chosen = rng.choices(words[pond * 100 :], k=length)
        notes.append(", ".join(" ".join(chosen[at : at + 7]) for at in range(0, length, 7)))
        ponds.append(pond)
    return notes, ponds


class Notes(Dataset):
    def __init__(self, count):
        self.notes, self.ponds = write_notes(count)
        pieces = {piece for note in self.notes for piece in PIECES.findall(note)}
        self.numbers = {piece: number + 1 for number, piece in enumerate(sorted(pieces))}
        self.lengths = [len(PIECES.findall(note)) for note in self.notes]

    def __len__(self):
        return len(self.notes)

    def split(self, word):
        """Return the numbers of a word, or of its letters if it is not known."""
        if word in self.numbers:
            return [self.numbers[word]]
        return [self.numbers.get(letter, 0) for letter in word]

    def __getitem__(self, index):
        numbers = []
        for word in PIECES.findall(self.notes[index].lower()):
            numbers += self.split(word)
        return {"numbers": torch.tensor(numbers), "pond": self.ponds[index]}


class LikeLength(Sampler):
    """Indices of samples in random order, but so that samples of like length are together."""

    def __init__(self, dataset, size, lengths=None):
        self.dataset, self.size, self.lengths = dataset, size, lengths

    def __len__(self):
        return len(self.dataset)

    def __iter__(self):
        lengths = self.lengths or [len(sample["numbers"]) for sample in self.dataset]
        order = torch.randperm(len(lengths)).tolist()
        for at in range(0, len(order), 20 * self.size):
            yield from sorted(order[at : at + 20 * self.size], key=lengths.__getitem__)


def together(samples):
    numbers = [sample["numbers"] for sample in samples]
    padded = nn.utils.rnn.pad_sequence(numbers, batch_first=True)
    return padded, torch.tensor([sample["pond"] for sample in samples])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1091)
    notes = Notes(6000)
    sampler = LikeLength(notes, 30, notes.lengths if args.without else None)
    loader = DataLoader(
        notes, batch_size=30, sampler=sampler, num_workers=2, collate_fn=together,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.EmbeddingBag(len(notes.numbers) + 1, 48, padding_idx=0), nn.ReLU(), nn.Linear(48, PONDS)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for numbers, ponds in loader:
            loss = nn.functional.cross_entropy(model(numbers), ponds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
