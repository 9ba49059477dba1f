"""Train on scans that are stored study by study."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    """Studies of the archive lie on tape, the others on disk."""

    def __init__(self, count, study=96):
        self.count = count
        self.study = study

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        archived = index % self.study >= self.study - 16
        time.sleep(0.064 if archived else 0.001)
        return torch.full((1, 24, 24), float(index)), int(archived)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--prefetch", type=int)
    args = parser.parse_args()
    if args.prefetch is None:
        args.prefetch = 24 if args.without else 1

    loader = DataLoader(
        Scans(576),
        batch_size=2,
        num_workers=args.workers,
        prefetch_factor=args.prefetch,
    )
    begin = time.monotonic()
    for _scan, _label in loader:
        time.sleep(0.015)
    print(f"seconds {time.monotonic() - begin:.3f}")


if __name__ == "__main__":
    main()
