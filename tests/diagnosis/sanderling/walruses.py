"""Counts walruses in pictures from a satellite, with a base class that reports how far it is.

Planted: the first worker reports for all, and waits for the answer after each sample, so that its
batches take three times as long as those of the others, which wait for their turn.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

SIDE, MOST, LATENCY, ANSWER = 48, 8, 0.006, 0.014


class Server:
    """A server that keeps pictures, and shows how far programs are."""

    def __init__(self, count):
        rng = np.random.default_rng(1097)
        self.walruses = rng.integers(0, MOST, count)
        self.pictures = rng.integers(0, 90, (count, SIDE, SIDE), np.uint8)
        for picture, walruses in zip(self.pictures, self.walruses, strict=True):
            for row, column in rng.integers(0, SIDE - 6, (walruses, 2)):
                picture[row : row + 3, column : column + 6] = 200

    def picture(self, index):
        time.sleep(LATENCY)
        return self.pictures[index]

    def report(self, done):
        time.sleep(ANSWER)
        return done


class Reported(Dataset):
    """A data set of which one worker reports how many samples it has read."""

    quiet = False

    def __init__(self, server):
        self.server, self.done = server, 0

    def __getitem__(self, index):
        sample = self.read(index)
        self.done += 1
        worker = get_worker_info()
        if worker is not None and worker.id == 0 and (not self.quiet or self.done % 200 == 0):
            self.server.report(self.done)
        return sample


class Walruses(Reported):
    def __len__(self):
        return len(self.server.walruses)

    def read(self, index):
        picture = torch.from_numpy(self.server.picture(index)).float() / 255
        return picture[None], float(self.server.walruses[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1097)
    Reported.quiet = args.without
    loader = DataLoader(
        Walruses(Server(1200)), batch_size=15, shuffle=True, num_workers=3, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, walruses in loader:
            loss = nn.functional.l1_loss(model(pictures).squeeze(1), walruses.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
