"""Restore mosaics; gradients are gathered: each 16th step takes long, all others do not."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

GATHER = 16


class Mosaics(Dataset):
    """Tiles from a service that needs a moment for each."""

    def __init__(self, count):
        self.tiles = torch.randint(0, 256, (20, 3, 48, 48), dtype=torch.uint8)
        self.count = count
        self.change = v2.Compose([v2.RandomVerticalFlip(), v2.ToDtype(torch.float32, scale=True)])

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.003)
        return self.change(self.tiles[index % 20])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="prefetch enough for all 16 steps")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    loader = DataLoader(
        Mosaics(4096),
        batch_size=8,
        shuffle=True,
        num_workers=args.workers,
        prefetch_factor=12 if args.without else 1,
        persistent_workers=True,
    )
    begin = time.perf_counter()
    for number, _tiles in enumerate(loader, 1):
        # The accelerator works on all that was gathered; before that, only copies are queued.
        time.sleep(0.28 if number % GATHER == 0 else 0.001)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
