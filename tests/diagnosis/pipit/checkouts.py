"""Predicts what is bought next at the checkout of a shop.

Planted: the index of who bought what is built at the first sample in each worker, and workers are
started anew for each epoch.
"""

import argparse
import random
import time
from collections import Counter, defaultdict
from functools import cached_property

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BASKETS, GOODS, SHOWN, BATCH, STEP = 24_000, 600, 12, 32, 0.03
SAMPLES = 1280


def baskets():
    drawn = random.Random(47)
    goods = range(GOODS)
    return [drawn.choices(goods, k=20) for _ in range(BASKETS)]


class Together(Dataset):
    """A good, what is most often bought with it, and what was bought with it in one basket."""

    def __init__(self, lines):
        self.lines = lines

    @cached_property
    def often(self):
        together = defaultdict(Counter)
        for line in self.lines:
            for good in line:
                together[good].update(line)
        return {good: [other for other, _ in c.most_common(64)] for good, c in together.items()}

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        good, *others = random.sample(self.lines[index], 5)
        shown = random.sample(self.often[good], SHOWN)
        return torch.tensor([good, *shown]), others[0]


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.goods, self.score = nn.Embedding(GOODS, width), nn.Linear(width, GOODS)

    def forward(self, shown):
        goods = self.goods(shown)
        return self.score(torch.relu(goods[:, 0] + goods[:, 1:].mean(1)))


class Trainer:
    def __init__(self, model, epochs):
        self.model, self.epochs = model, epochs
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(self, shown, bought):
        loss = nn.functional.cross_entropy(self.model(shown), bought)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(STEP)  # the accelerator's share
        return loss

    def fit(self, loader):
        begin = time.perf_counter()
        for epoch in range(self.epochs):
            losses = torch.stack([self.step(*batch).detach() for batch in loader])
            print(f"epoch {epoch}: loss {losses.mean():.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(47)
    torch.set_num_threads(1)
    loader = DataLoader(
        Together(baskets()),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=args.without,
        multiprocessing_context="fork",
    )
    Trainer(Net(), args.epochs).fit(loader)
    del loader


if __name__ == "__main__":
    main()
