"""Learns where cobbles came from, by their lengths, with rare places drawn more often.

Planted: the batch sampler draws each batch anew, without replacement, from the weights of half a
million rows, in the main process.
"""

import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

PLACES = 12
log = logging.getLogger("cobbles")


class Cobbles(Dataset):
    def __init__(self, rows=500_000):
        draw = torch.Generator().manual_seed(23)
        self.lengths = torch.rand(rows, 24, generator=draw)
        self.places = (torch.rand(rows, generator=draw) ** 3 * PLACES).long()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        lengths = self.lengths[index]
        noise = torch.randn(24) * 0.01
        return torch.cat([lengths + noise, lengths.sort().values]), self.places[index]


class Balanced(Sampler):
    """Yields the rows of a batch; each place is as likely as another one."""

    def __init__(self, places, batch_size, batches, at_once):
        shares = torch.bincount(places, minlength=PLACES).double()
        self.weights = (1 / shares)[places]
        self.batch_size, self.batches, self.at_once = batch_size, batches, at_once

    def __len__(self):
        return self.batches

    def __iter__(self):
        if self.at_once:
            rows = torch.multinomial(self.weights, self.batches * self.batch_size, True)
            yield from rows.view(self.batches, self.batch_size).tolist()
            return
        for _ in range(self.batches):
            yield torch.multinomial(self.weights, self.batch_size, False).tolist()


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(self, lengths, places):
        loss = nn.functional.cross_entropy(self.model(lengths), places)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, epochs):
        for epoch in range(epochs):
            for number, (lengths, places) in enumerate(self.loader):
                loss = self.step(lengths, places)
                if number % 20 == 0:
                    log.info("epoch %d batch %d: loss %.4f", epoch, number, loss)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(23)
    cobbles = Cobbles()
    sampler = Balanced(cobbles.places, 96, 80, at_once=args.without)
    loader = DataLoader(cobbles, batch_sampler=sampler, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, PLACES)
    )
    trainer = Trainer(model, loader)
    begin = time.perf_counter()
    trainer.fit(args.epochs)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del trainer, loader


if __name__ == "__main__":
    main()
