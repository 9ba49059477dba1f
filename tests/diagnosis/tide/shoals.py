"""Names shoals of fish from logs in five languages, of which only one is used here."""

import argparse
import itertools
import random
import re
import time
from collections import Counter

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WORDS = "net deck storm cod herring quota boat harbour ice catch shoal north".split()
LANGUAGES = "en is no fo da".split()


def make_logs(count, seed=12):
    """(language, text, kind), in the order in which countries sent them."""
    chance = random.Random(seed)
    return [
        (
            LANGUAGES[number * len(LANGUAGES) // count],
            " ".join(chance.choices(WORDS, k=400)),
            number % 4,
        )
        for number in range(count)
    ]


class Logs(IterableDataset):
    def __init__(self, logs, language="en", strided=False):
        self.logs, self.language, self.strided = logs, language, strided
        self.numbers = {word: number for number, word in enumerate(WORDS)}

    def part(self):
        worker = get_worker_info()
        if worker is None:
            return self.logs
        if self.strided:
            return self.logs[worker.id :: worker.num_workers]
        size = -(-len(self.logs) // worker.num_workers)
        return self.logs[worker.id * size : (worker.id + 1) * size]

    def encode(self, text):
        """Counts of words and of pairs of words, as the embedding bag wants them."""
        words = re.findall(r"[a-z]+", text.lower())
        counts = torch.zeros(len(WORDS) ** 2)
        for (one, other), times in Counter(itertools.pairwise(words)).items():
            counts[self.numbers[one] * len(WORDS) + self.numbers[other]] += times
        return counts.log1p()

    def __iter__(self):
        for language, text, kind in self.part():
            if language == self.language:
                yield self.encode(text), kind


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(12)
    data = Logs(make_logs(20000), strided=args.without)
    loader = DataLoader(data, batch_size=64, num_workers=4)
    model = nn.Sequential(nn.Linear(144, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        batches, total = 0, 0.0
        for counts, kinds in loader:
            loss = nn.functional.cross_entropy(model(counts), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batches, total = batches + 1, total + loss.item()
        print(f"epoch {epoch}: loss {total / batches:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
