"""Learns the courses of ships of vikings from logs in a stream, with a bar for the progress.

Planted: before each epoch, a pass through the whole loader counts its batches for the bar.
"""

import argparse
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHIPS, LOGS, POINTS, BATCH, ARCHIVE, STEP = 24, 20, 30, 12, 0.008, 0.04


class Courses(IterableDataset):
    """The logs of ships; each worker reads ships of its own."""

    def __init__(self):
        rng = np.random.default_rng(113)
        self.courses = rng.normal(0, 1, (SHIPS, LOGS, POINTS + 1, 2)).cumsum(2)
        self.calm = rng.random((SHIPS, LOGS)) < 0.1

    def logs(self, ship):
        for number in range(LOGS):
            time.sleep(ARCHIVE)
            if not self.calm[ship, number]:
                yield self.courses[ship, number]

    def turned(self, course):
        angle = np.random.uniform(0, 2 * np.pi)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        return ((course - course[0]) @ turn).astype(np.float32)

    def __iter__(self):
        info = get_worker_info()
        for ship in range(info.id, SHIPS, info.num_workers):
            for course in self.logs(ship):
                course = torch.from_numpy(self.turned(course))
                yield course[:-1], course[-1]


class Bar:
    """Shows how far an epoch is."""

    def __init__(self, loader, total):
        self.loader, self.total = loader, total

    @classmethod
    def around(cls, loader, known=None):
        total = known if known is not None else sum(1 for _ in loader)
        return cls(loader, total)

    def __iter__(self):
        for number, batch in enumerate(self.loader, 1):
            yield batch
            if number % 10 == 0:
                done = 20 * number // self.total
                print(f"[{'#' * done:20}] {number}/{self.total}", file=sys.stderr)


class Steersman(nn.Module):
    def __init__(self):
        super().__init__()
        self.past = nn.LSTM(2, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, courses):
        return self.head(self.past(courses)[1][0][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(113)
    torch.set_num_threads(1)
    data = Courses()
    loader = DataLoader(data, BATCH, num_workers=2, persistent_workers=True)
    known = -(-int((~data.calm).sum()) // BATCH) if args.without else None
    model = Steersman()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for courses, ends in Bar.around(loader, known):
            loss = nn.functional.mse_loss(model(courses), ends)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a larger model on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
