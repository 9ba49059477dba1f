"""Tells atolls from clouds in satellite pictures of several bands.

Planted: the function that starts a worker binds it to the cores of one of eight ranks, a helper
from a larger machine, and so all three workers share one core.
"""

import argparse
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

TILES, BANDS, SIDE, BATCH, STEP = 320, 6, 320, 16, 0.05


class Placement:
    """Gives each rank of a machine its own cores, as the vendor's guide says."""

    def __init__(self, rank=0, ranks=8):
        cores = sorted(os.sched_getaffinity(0))
        each = max(1, len(cores) // ranks)
        self.cores = cores[rank * each : (rank + 1) * each]

    def __call__(self, worker):
        os.sched_setaffinity(0, self.cores)


class Tiles(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(859)
        small = torch.randint(0, 4000, (24, BANDS, SIDE, SIDE), generator=generator)
        self.tiles = small.to(torch.int16)
        self.transform = v2.Compose(
            [
                v2.RandomRotation(30),
                v2.RandomResizedCrop(256, scale=(0.5, 1.0), antialias=True),
                v2.GaussianBlur(5),
                v2.RandomHorizontalFlip(),
            ]
        )

    def __len__(self):
        return TILES

    def __getitem__(self, index):
        tile = self.tiles[index % len(self.tiles)].float() / 4000
        return self.transform(tile), index % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(859)
    torch.set_num_threads(1)
    loader = DataLoader(
        Tiles(),
        BATCH,
        shuffle=True,
        num_workers=3,
        persistent_workers=True,
        worker_init_fn=None if args.without else Placement(),
    )
    model = nn.Sequential(
        nn.AvgPool2d(8), nn.Conv2d(BANDS, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)
    )
    model(torch.zeros(1, BANDS, 256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for tiles, kinds in loader:
            loss = nn.functional.cross_entropy(model(tiles), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the backbone, on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
