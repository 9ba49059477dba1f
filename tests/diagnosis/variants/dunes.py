"""Follow dunes in satellite pictures; each worker compresses its log beside its work."""

import argparse
import threading
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Dunes(Dataset):
    def __init__(self, count):
        self.pictures = torch.randn(32, 3, 32, 32)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.pictures[index % 32].roll(index % 7, -1), index % 5


class LogInBackground:
    """A worker_init_fn that has a thread compress the worker's log, over and over."""

    def __init__(self):
        self.log = np.random.default_rng(19).integers(0, 40, 3_000_000, dtype=np.uint8).tobytes()

    def __call__(self, _worker):
        threading.Thread(target=self.compress, daemon=True).start()

    def compress(self):
        while True:
            zlib.compress(self.log, 9)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="do not compress the log")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    loader = DataLoader(
        Dunes(1400),
        batch_size=20,
        shuffle=True,
        num_workers=args.workers,
        worker_init_fn=None if args.without else LogInBackground(),
        prefetch_factor=4,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(5),
    )
    model(torch.zeros(1, 3, 32, 32))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    begin = time.perf_counter()
    for pictures, labels in loader:
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
