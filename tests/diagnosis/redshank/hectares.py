"""Estimates the yield of fields from tiles of satellite pictures; some fields are very large."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIDE, BANDS, BATCH = 32, 6, 8
STEP = 0.05


class Fields(IterableDataset):
    """Farm after farm: many small fields, and after them the estate's large ones."""

    def __init__(self, farms):
        rng = np.random.default_rng(16)
        self.ground = rng.normal(0.4, 0.1, (BANDS, 1024, 1024)).astype(np.float32)
        self.farms = farms

    def index(self, tile):
        """Bands, and how green and how wet each place is."""
        green = (tile[3] - tile[2]) / (tile[3] + tile[2] + 1e-3)
        wet = (tile[3] - tile[4]) / (tile[3] + tile[4] + 1e-3)
        return np.concatenate([tile, np.tanh(green)[None], np.tanh(wet)[None]])

    def field(self, rng, size):
        down, right = rng.integers(0, 1024 - size, 2)
        whole = self.index(self.ground[:, down : down + size, right : right + size])
        blocks = whole.reshape(len(whole), SIDE, size // SIDE, SIDE, size // SIDE)
        middle = np.median(blocks, axis=(2, 4)).astype(np.float32)
        return torch.from_numpy(middle), float(middle[6].mean())

    def __iter__(self):
        worker = get_worker_info()
        rng = np.random.default_rng(worker.id)
        for _ in range(worker.id, self.farms, worker.num_workers):
            for _ in range(13 * BATCH):
                yield self.field(rng, 64)
            for _ in range(3 * BATCH):
                yield self.field(rng, 704)


class Accelerator:
    """Stands for the device on which the network runs; its steps take a while."""

    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(self, tiles, harvest):
        end = time.perf_counter() + STEP
        loss = nn.functional.mse_loss(self.model(tiles)[:, 0], harvest)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(max(0.0, end - time.perf_counter()))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(16)
    torch.set_num_threads(1)
    loader = DataLoader(
        Fields(farms=12),
        BATCH,
        num_workers=2,
        prefetch_factor=12 if args.without else 1,
        persistent_workers=True,
        multiprocessing_context="forkserver",
    )
    device = Accelerator(
        nn.Sequential(
            nn.Conv2d(BANDS + 2, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(64, 1),
        )
    )  # fmt: skip
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = steps = 0
        for tiles, harvest in loader:
            total += device.step(tiles, harvest.float())
            steps += 1
        print(f"epoch {epoch}: loss {total / steps:.3f} of {steps} steps")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
