"""Counts blueberries in drawn trays, with a thread that takes batches out of the loader ahead.

Planted: the thread binds itself to the last core, to leave the others to the training. But it is
the one that starts the loader's two workers, which inherit that, and share the one core.
"""

import argparse
import os
import queue
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, COUNT, MOST = 96, 540, 24


class Ahead:
    """Goes through an iterable in a thread, a few items ahead of who uses them."""

    def __init__(self, iterable, items=3, aside=True):
        self.iterable, self.aside = iterable, aside
        self.queue = queue.Queue(items)
        self.thread = threading.Thread(target=self.work, name="ahead", daemon=True)

    def work(self):
        try:
            if self.aside:
                os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
            for item in self.iterable:
                self.queue.put((item, None))
            self.queue.put((None, StopIteration()))
        except Exception as error:
            self.queue.put((None, error))

    def __iter__(self):
        self.thread.start()
        while True:
            item, error = self.queue.get(timeout=120)
            if error is not None:
                self.thread.join(timeout=30)
                if isinstance(error, StopIteration):
                    return
                raise error
            yield item


class Trays(Dataset):
    """Trays with some berries, drawn when they are asked for."""

    def __init__(self):
        self.counts = np.random.default_rng(3137).integers(1, MOST, COUNT)
        self.rows, self.columns = np.mgrid[:SIDE, :SIDE].astype(np.float32)
        self.transform = v2.Compose(
            [v2.GaussianBlur(5), v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()]
        )

    def __len__(self):
        return COUNT

    def draw(self, index):
        rng = np.random.default_rng([3137, index])
        tray = rng.uniform(0.6, 0.8, (SIDE, SIDE)).astype(np.float32)
        for _ in range(self.counts[index]):
            y, x = rng.uniform(4, SIDE - 4, 2)
            far = np.hypot(self.rows - y, self.columns - x)
            tray *= 1 - 0.7 / (1 + np.exp(2 * (far - 4)))
        return tray

    def __getitem__(self, index):
        tray = torch.from_numpy(self.draw(index))[None]
        return self.transform(tray), float(self.counts[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(3137)
    loader = DataLoader(
        Trays(), batch_size=12, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for trays, counts in Ahead(loader, aside=not args.without):
            loss = nn.functional.l1_loss(model(trays).squeeze(1) * MOST, counts.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
