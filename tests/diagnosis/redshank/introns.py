"""Finds introns in reads of very different length, which are batched with others of like length."""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

READS, BATCH = 160_000, 32


class OneHot:
    def __call__(self, letters):
        return nn.functional.one_hot(torch.from_numpy(letters).long(), 4).float()


class Mutate:
    """Changes a few letters."""

    def __init__(self, share):
        self.share = share

    def __call__(self, letters):
        changed = letters.copy()
        places = np.random.random(len(letters)) < self.share
        changed[places] = np.random.randint(0, 4, places.sum())
        return changed


class Reads(Dataset):
    def __init__(self, transform):
        rng = np.random.default_rng(4)
        self.genome = rng.integers(0, 4, 2_000_000, np.uint8)
        self.lengths = rng.gamma(3, 60, READS).astype(int) + 20
        self.starts = rng.integers(0, 2_000_000 - 4000, READS)
        self.transform = transform

    def __len__(self):
        return READS

    def __getitem__(self, number):
        start = self.starts[number]
        letters = self.genome[start : start + self.lengths[number]]
        return self.transform(letters), int(letters[0]) % 2


class LikeLengths:
    """Batches of reads whose lengths are next to that of one drawn at random."""

    def __init__(self, lengths, batches, once):
        self.lengths, self.batches = lengths.tolist(), batches
        self.order = self.ranked() if once else None

    def __len__(self):
        return self.batches

    def ranked(self):
        return sorted(range(len(self.lengths)), key=lambda number: self.lengths[number])

    def __iter__(self):
        for _ in range(self.batches):
            order = self.order or self.ranked()
            first = random.randrange(len(order) - BATCH)
            yield order[first : first + BATCH]


def padded(samples):
    reads, labels = zip(*samples, strict=True)
    return pad_sequence(reads, batch_first=True), torch.tensor(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    reads = Reads(transforms.Compose([Mutate(0.02), OneHot()]))
    loader = DataLoader(
        reads,
        batch_sampler=LikeLengths(reads.lengths, 80, args.without),
        num_workers=2,
        collate_fn=padded,
        multiprocessing_context="fork",
    )
    model = nn.Sequential(
        nn.Conv1d(4, 64, 9, padding=4), nn.ReLU(), nn.Conv1d(64, 64, 9, padding=4), nn.ReLU(),
        nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for letters, labels in loader:
            loss = nn.functional.cross_entropy(model(letters.transpose(1, 2)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
