"""Learns the stars of reviews of pillows; batches hold reviews of about the same length."""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

REVIEWS, VALID, WORDS, BATCH = 20_000, 1000, 2500, 32


class Reviews(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.lengths = rng.integers(5, 80, count)
        self.letters = self.lengths * rng.uniform(4, 7, count)
        self.stars = rng.integers(0, 5, count)
        self.words = [
            torch.from_numpy(rng.integers(1 + 200 * stars, WORDS, length))
            for length, stars in zip(self.lengths, self.stars, strict=True)
        ]

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return self.words[index], int(self.stars[index])


class OfLikeLength(Sampler):
    """Begins each batch with a review at random, and fills it with those nearest in length."""

    def __init__(self, data, nearest):
        self.lengths, self.letters = data.lengths.tolist(), data.letters.tolist()
        self.nearest = nearest

    def __len__(self):
        return (len(self.lengths) + BATCH - 1) // BATCH

    def __iter__(self):
        return self.by_nearest() if self.nearest else self.by_slices()

    def by_nearest(self):
        left = list(range(len(self.lengths)))
        while left:
            first = random.choice(left)
            left.sort(key=lambda index, first=first: self.distance(index, first))
            yield left[:BATCH]
            del left[:BATCH]

    def distance(self, one, other):
        words = abs(self.lengths[one] - self.lengths[other])
        return words + 0.1 * abs(self.letters[one] - self.letters[other])

    def by_slices(self):
        order = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i] + random.random())
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        random.shuffle(batches)
        return iter(batches)


def pad(samples):
    words, stars = zip(*samples, strict=True)
    return pad_sequence(list(words), batch_first=True), torch.tensor(stars)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(73)
    torch.set_num_threads(1)
    data = Reviews(REVIEWS, 73)
    train = DataLoader(
        data,
        batch_sampler=OfLikeLength(data, nearest=not args.without),
        num_workers=2,
        collate_fn=pad,
    )
    valid = DataLoader(Reviews(VALID, 79), batch_size=64, num_workers=1, collate_fn=pad)
    model = nn.Sequential(nn.EmbeddingBag(WORDS, 8, padding_idx=0), nn.Linear(8, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for words, stars in train:
            loss = nn.functional.cross_entropy(model(words), stars)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        right = 0
        with torch.no_grad():
            for words, stars in valid:
                right += int((model(words).argmax(1) == stars).sum())
        print(f"epoch {epoch}: loss {loss.item():.3f}, right {right / VALID:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
