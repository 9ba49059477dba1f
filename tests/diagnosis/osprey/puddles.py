"""Segments puddles in aerial tiles, some of which were moved to cheap storage long ago.

Planted: one tile in 80, always the same ones, comes back after 0.8 s, and the batches that other
workers have made meanwhile wait for that one, since they are taken in order.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEP = 0.012


class Bucket:
    """Files of which some are in cheap storage."""

    def __init__(self, count):
        draw = torch.Generator().manual_seed(47)
        self.tiles = torch.rand(50, 3, 32, 32, generator=draw)
        self.archived = set(torch.randperm(count, generator=draw)[: count // 80].tolist())

    def get(self, number):
        time.sleep(0.8 if number in self.archived else 0.003)
        return self.tiles[number % 50]


class Tiles(Dataset):
    def __init__(self, count):
        self.bucket, self.count = Bucket(count), count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        tile = self.bucket.get(number)
        if number % 2:
            tile = tile.flip(2)
        gamma = 0.8 + 0.4 * torch.rand(())
        return tile**gamma, (tile.mean(0) > 0.6).float()


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self, model):
        self.model = model

    def step(self, tiles, wet):
        begin = time.perf_counter()
        with torch.no_grad():
            out = self.model(tiles).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(out, wet)
        time.sleep(max(0.0, STEP - (time.perf_counter() - begin)))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="takes batches out of order")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(47)
    loader = DataLoader(
        Tiles(800),
        batch_size=8,
        shuffle=True,
        num_workers=4,
        in_order=not args.without,
        persistent_workers=True,
    )
    accelerator = Accelerator(nn.Conv2d(3, 1, 3, padding=1))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.step(tiles, wet) for tiles, wet in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
