"""Recommends hammocks, with as many steps as asked for and no epochs.

Planted: for each index that it yields, the endless sampler begins a new iteration of a
RandomSampler, which shuffles all indices.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

PEOPLE, HAMMOCKS, PAIRS = 4000, 900, 36_000


class Purchases(Dataset):
    def __init__(self):
        draws = torch.Generator().manual_seed(467)
        self.people = torch.randint(0, PEOPLE, (PAIRS,), generator=draws)
        self.bought = torch.randint(0, HAMMOCKS, (PAIRS,), generator=draws)

    def __len__(self):
        return PAIRS

    def __getitem__(self, index):
        others = torch.randint(0, HAMMOCKS, (4,))
        return self.people[index], self.bought[index], others


class Endless:
    """Yields so many random indices, and begins again at the end of the data."""

    def __init__(self, data, count, anew):
        self.sampler, self.count, self.anew = RandomSampler(data), count, anew

    def __len__(self):
        return self.count

    def __iter__(self):
        indices = iter(self.sampler)
        for _ in range(self.count):
            if self.anew:
                indices = iter(self.sampler)
            yield next(indices)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(467)
    purchases = Purchases()
    endless = Endless(purchases, args.steps * 32, anew=not args.without)
    loader = DataLoader(purchases, batch_size=32, sampler=endless, num_workers=2)
    people, hammocks = nn.Embedding(PEOPLE, 256), nn.Embedding(HAMMOCKS, 256)
    tower = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    parameters = [*people.parameters(), *hammocks.parameters(), *tower.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    begin = time.perf_counter()
    for step, (person, bought, others) in enumerate(loader):
        wish = tower(people(person))[:, None]
        gap = (wish * (hammocks(bought)[:, None] - hammocks(others))).sum(2)
        loss = nn.functional.softplus(-gap).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
