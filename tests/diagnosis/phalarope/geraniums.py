"""Learns the growth of plants from series of pictures; one batch of nine is of whole seasons.

Planted: the loader takes one batch ahead for each worker, which is too little for the time that
a batch of whole seasons takes, though the workers have time enough on the whole.
"""

import argparse
import random
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DAY, SEASON, STEP = 0.0004, 0.04, 0.04


@dataclass
class Config:
    epochs: int
    ahead: int
    batches: int = 90
    every: int = 9
    batch: int = 8
    values: int = 64
    workers: int = 2


class Plants(Dataset):
    """The first samples are of single days, the last of whole seasons."""

    def __init__(self, config):
        self.seasons = config.batches // config.every * config.batch
        self.days = (config.batches - config.batches // config.every) * config.batch
        self.values = torch.randn(self.days + self.seasons, config.values)

    def __len__(self):
        return self.days + self.seasons

    def __getitem__(self, index):
        # Pictures come from the greenhouse; there are more of them in a season.
        time.sleep(DAY if index < self.days else SEASON)
        values = self.values[index]
        return values + 0.01 * torch.randn_like(values), values[:4].sum()


class Mixed:
    """Batches of days, and after some of them one of seasons."""

    def __init__(self, data, config):
        self.data, self.config = data, config

    def __len__(self):
        return self.config.batches

    def __iter__(self):
        days = random.sample(range(self.data.days), self.data.days)
        seasons = list(range(self.data.days, len(self.data)))
        random.shuffle(seasons)
        for number in range(self.config.batches):
            pool = seasons if number % self.config.every == self.config.every - 1 else days
            yield [pool.pop() for _ in range(self.config.batch)]


def train(config):
    data = Plants(config)
    loader = DataLoader(
        data,
        batch_sampler=Mixed(data, config),
        num_workers=config.workers,
        prefetch_factor=config.ahead,
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Linear(config.values, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    begin = time.perf_counter()
    for epoch in range(config.epochs):
        for step, (values, growth) in enumerate(loader):
            loss = nn.functional.mse_loss(model(values).squeeze(1), growth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of the large model on an accelerator
            if step % 30 == 29:
                print(f"epoch {epoch}, {step + 1}/{len(loader)}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(4091)
    random.seed(4091)
    train(Config(args.epochs, ahead=8 if args.without else 1))


if __name__ == "__main__":
    main()
