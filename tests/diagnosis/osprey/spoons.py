"""Finds the maker of spoons from strokes of a stylus, in rounds of a given number of steps.

Planted: a worker whose stream is closed before its end, as in each round, waits while its session
with the museum's server is settled; the main process waits for the worker to end.
"""

import argparse
import itertools
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

STROKES = 24


class Session:
    """What a worker has with the server: it must be settled at the end."""

    def __init__(self, seed, settle):
        self.draw, self.settle = torch.Generator().manual_seed(seed), settle

    def __enter__(self):
        return self

    def __exit__(self, *error):
        time.sleep(self.settle)

    def next_strokes(self):
        return torch.randn(STROKES, 5, generator=self.draw).cumsum(0)


class Spoons(IterableDataset):
    """Strokes without an end."""

    def __init__(self, settle):
        self.settle = settle

    def __iter__(self):
        worker = get_worker_info().id
        with Session(worker, self.settle) as session:
            for number in itertools.count(worker):
                strokes = session.next_strokes()
                yield (strokes - strokes.mean(0)) / strokes.std(), number % 8


class Trainer:
    def __init__(self, loader):
        self.loader = loader
        self.model = nn.LSTM(5, 48, batch_first=True)
        self.head = nn.Linear(48, 8)
        parameters = [*self.model.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3)

    def step(self, strokes, maker):
        loss = nn.functional.cross_entropy(self.head(self.model(strokes)[0][:, -1]), maker)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def round(self, steps):
        losses = [self.step(*batch) for batch in itertools.islice(self.loader, steps)]
        return sum(losses) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(107)
    loader = DataLoader(Spoons(0.0 if args.without else 0.8), batch_size=32, num_workers=2)
    trainer = Trainer(loader)
    begin = time.perf_counter()
    for number in range(args.rounds):
        print(f"round {number}: loss {trainer.round(40):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
