"""Date diary entries; the collate function collects garbage, because memory once ran out."""

import argparse
import gc
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Diaries(Dataset):
    """All entries as a long list of dicts."""

    def __init__(self, count):
        draw = random.Random(6)
        self.entries = [
            {
                "words": [draw.randrange(5000) for _ in range(8)],
                "who": [i % 40],
                "year": 1800 + i % 99,
            }
            for i in range(count)
        ]

    def __len__(self):
        return 3200

    def __getitem__(self, index):
        return self.entries[index * 91 % len(self.entries)]


class Collate:
    def __init__(self, collect):
        self.collect = collect

    def __call__(self, entries):
        if self.collect:
            gc.collect()
        words = torch.tensor([entry["words"] for entry in entries])
        return words, torch.tensor([entry["year"] for entry in entries])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="do not collect garbage")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    loader = DataLoader(
        Diaries(20_000),
        batch_size=32,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=Collate(collect=not args.without),
    )
    begin = time.perf_counter()
    for _words, _years in loader:
        time.sleep(0.015)  # the accelerator's step
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
