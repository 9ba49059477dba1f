"""Finds cormorants in patches; each worker keeps a feed of patches, filled by a thread."""

import argparse
import threading
import time
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PATCHES = 640


class Feed(threading.Thread):
    """Fills a short queue of patches, and looks whether there is room in it."""

    def __init__(self, seed, count, pause_s, room=8):
        super().__init__(daemon=True)
        self.generator = torch.Generator().manual_seed(seed)
        self.count, self.pause_s, self.room = count, pause_s, room
        self.patches = deque()

    def run(self):
        for number in range(self.count):
            while len(self.patches) >= self.room:
                if self.pause_s:
                    time.sleep(self.pause_s)
            patch = torch.randn(3, 64, 64, generator=self.generator)
            self.patches.append((patch, number % 2))

    def take(self):
        while not self.patches:
            time.sleep(0.0005)
        return self.patches.popleft()


class Patches(IterableDataset):
    def __init__(self, count, pause_s):
        self.count, self.pause_s = count, pause_s

    def __iter__(self):
        worker = get_worker_info()
        count = self.count // worker.num_workers
        feed = Feed(worker.seed, count, self.pause_s)
        feed.start()
        for _ in range(count):
            yield feed.take()


def block(inner, outer):
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(), nn.MaxPool2d(2)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(10)
    data = Patches(PATCHES, pause_s=0.005 if args.without else 0)
    loader = DataLoader(data, batch_size=16, num_workers=4, persistent_workers=True)
    model = nn.Sequential(
        block(3, 32),
        block(32, 64),
        block(64, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 2),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        seen, total = 0, 0.0
        for patches, birds in loader:
            loss = nn.functional.cross_entropy(model(patches), birds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen, total = seen + 1, total + loss.item()
        print(f"epoch {epoch}: loss {total / seen:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
