"""Translate subtitles in batches of one length; one bucket holds whole scripts by mistake."""

import argparse
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Subtitles(Dataset):
    """Lines, cut into the pieces of a vocabulary, longest match first."""

    def __init__(self, count, scripts):
        draw = random.Random(13)
        self.lines = [
            "".join(draw.choices("etaoinshr ", k=9000 if scripts and i % 24 == 7 else 60))
            for i in range(count)
        ]
        self.pieces = {
            "".join(draw.choices("etaoinshr ", k=draw.randrange(1, 6))) for _ in range(400)
        }
        self.pieces.update("etaoinshr ")

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        line = self.lines[index]
        cut, place = [], 0
        while place < len(line):
            size = next(n for n in range(6, 0, -1) if line[place : place + n] in self.pieces)
            cut.append(hash(line[place : place + size]) % 8000)
            place += size
        return torch.tensor(cut[:64] + [0] * (64 - len(cut)))


class Buckets(Sampler):
    def __init__(self, lines, size):
        by_length = {}
        for index, line in enumerate(lines):
            by_length.setdefault(len(line) // 100, []).append(index)
        self.batches = [
            bucket[at : at + size]
            for bucket in by_length.values()
            for at in range(0, len(bucket), size)
        ]

    def __iter__(self):
        order = list(range(len(self.batches)))
        random.Random(14).shuffle(order)
        return (self.batches[number] for number in order)

    def __len__(self):
        return len(self.batches)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="without the scripts")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    subtitles = Subtitles(4800, scripts=not args.without)
    loader = DataLoader(
        subtitles,
        batch_sampler=Buckets(subtitles.lines, 24),
        num_workers=args.workers,
        persistent_workers=True,
    )
    begin = time.perf_counter()
    for _epoch in range(2):
        for _lines in loader:
            time.sleep(0.01)  # the accelerator's step
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
