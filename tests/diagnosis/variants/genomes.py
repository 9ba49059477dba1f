"""Find genes; each epoch spawns a worker, to which all reads are handed as Python objects."""

import argparse
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Reads(Dataset):
    """Reads of a genome with their qualities, as tuples."""

    def __init__(self, count, length=48):
        draw = random.Random(24)
        self.reads = [
            (
                "".join(draw.choices("ACGT", k=length)),
                tuple(draw.choices(range(2000, 2041), k=length)),
                {"strand": draw.choice("+-"), "position": draw.randrange(1 << 30)},
            )
            for _ in range(count)
        ]

    def __len__(self):
        return 1600

    def __getitem__(self, index):
        bases, quality, where = self.reads[index]
        coded = torch.tensor(["ACGT".index(base) for base in bases])
        return coded, torch.tensor(quality), where["position"] % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="keep the worker between epochs")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    loader = DataLoader(
        Reads(60_000),
        batch_size=64,
        shuffle=True,
        num_workers=args.workers,
        multiprocessing_context="spawn",
        persistent_workers=args.without,
    )
    begin = time.perf_counter()
    for _ in range(args.epochs):
        for _bases, _quality, _labels in loader:
            time.sleep(0.012)  # the accelerator's step
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
