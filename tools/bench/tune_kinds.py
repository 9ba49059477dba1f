"""Training loops for which `lotus tune` once left much of the gain, or promised too much.

    python tools/bench/tune_kinds.py KIND [--workers N] [--prefetch N] [--persistent] [--threads N]

    bursts   every 16th batch waits for 0.3 s, as for a cold shard: prefetching bridges that
    blas     samples by a product of matrices: in each worker BLAS has as many threads as cores
    short    epochs of 20 batches that start their workers anew, beside a step of two threads
    cnn      workers and a step of two threads compete for two cores
    crowded  the same without workers, and with more threads than cores

Without options each trains as a first version would be written; the options set what `lotus tune`
is to find. Prints the seconds of all epochs, including the start of workers.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, interpolate
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """Pictures in memory, resized back and forth: about 0.3 ms each."""

    def __init__(self, length):
        self.length = length
        self.images = torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = self.images[index % 256][None] / 255
        for size in (48, 32, 48, 32):
            image = interpolate(image, size=(size, size), mode="bilinear", antialias=True)
        return image[0], index % 10


class Products(Pictures):
    """Parts of a product of matrices, which numpy's BLAS computes."""

    def __init__(self, length):
        super().__init__(length)
        self.matrix = np.random.default_rng(0).normal(size=(320, 320)).astype(np.float32)

    def __getitem__(self, index):
        made = self.matrix
        for _ in range(4):
            made = made @ self.matrix
            made /= np.abs(made).max()
        return torch.from_numpy(made[:96, :32].reshape(3, 32, 32).copy()), index % 10


class Shards(Pictures):
    """The first 8 of 256 samples wait."""

    def __getitem__(self, index):
        if index % 256 < 8:
            time.sleep(0.04)
        return torch.full((3, 32, 32), float(index % 7)), index % 10


@dataclass(frozen=True)
class Kind:
    dataset: type[Pictures]
    samples: int
    width: int = 0  # of the network; 0: the step sleeps, as if an accelerator did it
    batch: int = 32
    epochs: int = 1
    workers: int = 0
    threads: int | None = None
    shuffle: bool = True


KINDS = {
    "bursts": Kind(Shards, 3000, batch=16, workers=1, shuffle=False),
    "blas": Kind(Products, 1500, width=8, workers=2),
    "short": Kind(Pictures, 640, width=8, epochs=10, workers=2),
    "cnn": Kind(Pictures, 5000, width=16, workers=2),
    "crowded": Kind(Pictures, 5000, width=16, threads=4),
}


def model(width):
    return nn.Sequential(
        *(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10)),
    )


def train(kind, loader):
    network = model(max(kind.width, 1))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for _ in range(kind.epochs):
        for images, labels in loader:
            if not kind.width:
                time.sleep(0.010)
                continue
            optimizer.zero_grad()
            cross_entropy(network(images), labels).backward()
            optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--prefetch", type=int)
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--threads", type=int, help="of torch")
    options = parser.parse_args()
    kind = KINDS[options.kind]
    threads = options.threads or kind.threads
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    workers = kind.workers if options.workers is None else options.workers
    begun = time.perf_counter()
    loader = DataLoader(
        kind.dataset(kind.samples),
        batch_size=kind.batch,
        shuffle=kind.shuffle,
        num_workers=workers,
        prefetch_factor=options.prefetch if workers else None,
        persistent_workers=options.persistent,
    )
    train(kind, loader)
    print(f"{options.kind}: {kind.epochs} epochs in {time.perf_counter() - begun:.2f} s")


if __name__ == "__main__":
    main()
