"""Sorts cucumbers by how bent they are, with workers that log to one place.

Planted: workers send the lines of their log through a queue to a listener of the main process,
which hands each to a log server that takes 2.5 ms to confirm it. Two lines a sample are more than
that takes in, and after each epoch a worker cannot end before its lines have left it.
"""

import argparse
import logging
import logging.handlers
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COUNT, SIDE, GRADES, CONFIRM = 420, 48, 3, 0.0025

log = logging.getLogger("cucumbers")


class LogServer(logging.Handler):
    """Stands for the team's log server: each line is confirmed."""

    def __init__(self):
        super().__init__()
        self.lines = 0

    def emit(self, record):
        time.sleep(CONFIRM)
        self.lines += 1


class CentralLog:
    """What all processes log goes through one queue; one thread takes it from there."""

    def __init__(self, level):
        self.queue = multiprocessing.get_context("fork").Queue()
        self.server = LogServer()
        self.listener = logging.handlers.QueueListener(self.queue, self.server)
        log.setLevel(level)
        log.propagate = False
        log.addHandler(logging.handlers.QueueHandler(self.queue))

    def __enter__(self):
        self.listener.start()
        return self

    def __exit__(self, *_):
        self.listener.stop()
        self.queue.close()
        print(f"{self.server.lines} lines logged")


class Cucumbers(Dataset):
    def __init__(self):
        rng = np.random.default_rng(3041)
        self.grades = rng.integers(0, GRADES, COUNT)
        self.pictures = rng.normal(0, 20, (COUNT, SIDE, SIDE)).astype(np.float32)
        across = np.arange(SIDE)
        for picture, grade in zip(self.pictures, self.grades, strict=True):
            bend = (grade * 10 * np.sin(np.pi * across / SIDE)).astype(int)
            picture[SIDE // 3 + bend, across] += 200

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index])
        log.info("read cucumber %d of belt %d, grade %d", index, index % 7, self.grades[index])
        turned = bool(torch.rand(()) < 0.5)
        if turned:
            picture = picture.flip(1)
        picture = (picture - picture.mean()) / picture.std()
        log.info("prepared cucumber %d, turned %s, size %s", index, turned, tuple(picture.shape))
        return picture[None], int(self.grades[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(3041)
    loader = DataLoader(
        Cucumbers(), batch_size=14, shuffle=True, num_workers=2, multiprocessing_context="fork"
    )
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 24, 3), nn.ReLU(),
        nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(384, GRADES),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with CentralLog(logging.WARNING if args.without else logging.INFO):
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, grades in loader:
                loss = nn.functional.cross_entropy(model(pictures), grades)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
