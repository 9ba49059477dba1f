"""Trains by the number of steps, with a generator that goes round and round a short loader.

Planted: each round starts a spawned worker, and the data set, which keeps the records of all
gloves as Python objects, is pickled for it and loaded by it.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = "left right wool leather lined plain black brown small large worn new".split()


class Gloves(Dataset):
    """Records of all gloves; each item is a few of them, turned into numbers."""

    def __init__(self, count, records):
        draw = random.Random(41)
        self.records = [
            {
                "words": draw.choices(WORDS, k=5),
                "sizes": [draw.random() for _ in range(6)],
                "by": {"maker": f"maker {number % 97}", "year": 1950 + number % 70},
            }
            for number in range(records)
        ]
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        record = self.records[index * 37 % len(self.records)]
        words = torch.zeros(len(WORDS))
        for word in record["words"]:
            words[WORDS.index(word)] += 1
        return torch.cat([words, torch.tensor(record["sizes"])]), (record["by"]["year"] - 1950) / 70


def round_and_round(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--steps", type=int, default=24)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(41)
    loader = DataLoader(
        Gloves(512, records=30_000),
        batch_size=64,
        shuffle=True,
        num_workers=1,
        multiprocessing_context="fork" if args.without else "spawn",
    )
    model = nn.Sequential(nn.Linear(18, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU())
    head = nn.Linear(768, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
    batches = round_and_round(loader)
    begin = time.perf_counter()
    for step in range(args.steps):
        x, year = next(batches)
        loss = nn.functional.mse_loss(head(model(x))[:, 0], year.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 7:
            print(f"step {step}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
