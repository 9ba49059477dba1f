"""Counts yurts in pictures of the steppe taken by a satellite, on the processor.

Planted: in each of three workers, a thread checks the sums of all tiles again and again, without a
pause, and has the cores that the convolutions of the step need.
"""

import argparse
import hashlib
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

TILES, SIDE, BATCH, COUNT, WORKERS = 48, 192, 12, 720, 3


class Tiles(Dataset):
    def __init__(self):
        rng = np.random.default_rng(263)
        self.tiles = rng.integers(0, 255, (TILES, 4, 256, 256), dtype=np.uint8)
        self.sums = [hashlib.sha256(tile).hexdigest() for tile in self.tiles]
        self.damaged = set()

    def __len__(self):
        return COUNT

    def scrub(self):
        """Hold all tiles against the sums that they came with."""
        for number, (tile, known) in enumerate(zip(self.tiles, self.sums, strict=True)):
            if hashlib.sha256(tile).hexdigest() != known:
                self.damaged.add(number)

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        tile = self.tiles[index % TILES]
        y, x = rng.integers(0, 256 - SIDE, 2)
        window = tile[:, y : y + SIDE, x : x + SIDE].astype(np.float32) / 255
        if rng.random() < 0.5:
            window = window[:, :, ::-1]
        window = np.rot90(window, rng.integers(4), (1, 2))
        return torch.from_numpy(window.copy()), float(index % 7)


def keep_scrubbing(data):
    while True:
        data.scrub()


def start_scrubbing(_worker):
    data = get_worker_info().dataset
    threading.Thread(target=keep_scrubbing, args=(data,), name="scrub", daemon=True).start()


def scrub_once(_worker):
    get_worker_info().dataset.scrub()


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(4, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
        )
        self.density = nn.Conv2d(32, 1, 1)

    def forward(self, tiles):
        return self.density(self.features(tiles)).mean((1, 2, 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(263)
    loader = DataLoader(
        Tiles(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
        worker_init_fn=scrub_once if args.without else start_scrubbing,
    )
    model = Counter()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (tiles, yurts) in enumerate(loader):
            loss = nn.functional.mse_loss(model(tiles), yurts.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"epoch {epoch}, step {step}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
