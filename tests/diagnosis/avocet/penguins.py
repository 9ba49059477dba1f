"""Tells what a penguin does under water from the depths that a tag on its back wrote down.

Planted: the function that sets a worker up collects garbage, "to begin clean". That visits the
whole log of dives, which are Python lists, and copies the pages that they lie on, in each of the
workers, which are started anew in each epoch.
"""

import argparse
import gc
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

DIVES, DEPTHS, DEEDS, PER_EPOCH = 700_000, 10, 3, 1280


def made_up_dives():
    """Return the dives as the tag's reader gives them: lists of a bird, a deed and depths."""
    rng = random.Random(3023)
    shapes = [[rng.random() * 30 for _ in range(DEPTHS)] for _ in range(500)]
    gc.disable()
    dives = []
    for number in range(DIVES):
        deed = number % DEEDS
        depths = list(shapes[rng.randrange(500)])
        depths[deed] += 25
        dives.append([f"bird-{number % 97}", deed, depths])
    gc.enable()
    return dives


class Dives(Dataset):
    def __init__(self, dives):
        self.dives = dives

    def __len__(self):
        return len(self.dives)

    def __getitem__(self, index):
        _, deed, depths = self.dives[index]
        depths = torch.tensor(depths)
        slopes = depths.diff(prepend=depths[:1])
        return torch.cat([depths / 30, slopes / 10]), deed


def begin_clean(worker_id):
    random.seed(torch.initial_seed() % 2**32)
    gc.collect()


def begin_plain(worker_id):
    random.seed(torch.initial_seed() % 2**32)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(3023)
    dives = Dives(made_up_dives())
    loader = DataLoader(
        dives,
        batch_size=32,
        sampler=RandomSampler(dives, num_samples=PER_EPOCH),
        num_workers=2,
        worker_init_fn=begin_plain if args.without else begin_clean,
    )
    model = nn.Sequential(
        nn.Linear(2 * DEPTHS, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, DEEDS),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = seen = 0
        for values, deeds in loader:
            scores = model(values)
            loss = nn.functional.cross_entropy(scores, deeds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int((scores.argmax(1) == deeds).sum())
            seen += len(deeds)
        print(f"epoch {epoch}: {right / seen:.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
