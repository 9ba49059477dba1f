"""Recommends walks to people who like picnics, first against easy and later against hard walks.

Planted: from the second epoch on, the walks of each sample are drawn by numpy.random.choice
without replacement, which shuffles the numbers of all walks for thirty of them.
"""

import argparse
import json
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PEOPLE, WALKS, NEGATIVES, BATCH, STEP = 960, 150_000, 30, 24, 0.02


class Draws:
    """Walks that somebody has not gone."""

    def __init__(self, modern):
        self.rng = np.random.default_rng(41)
        self.modern = modern

    def easy(self):
        return np.random.randint(0, WALKS, NEGATIVES)

    def hard(self):
        if self.modern:
            return self.rng.choice(WALKS, NEGATIVES, replace=False, shuffle=False)
        return np.random.choice(WALKS, NEGATIVES, replace=False)


class People(Dataset):
    def __init__(self, draws):
        rng = np.random.default_rng(43)
        self.epoch, self.draws = 0, draws
        self.histories = []
        for person in range(PEOPLE):
            gone = rng.integers(0, WALKS, 60).tolist()
            text = json.dumps({"person": person, "gone": gone, "notes": "windy " * 60})
            self.histories.append(zlib.compress(text.encode()))

    def __len__(self):
        return PEOPLE

    def history(self, index):
        return json.loads(zlib.decompress(self.histories[index]))["gone"]

    def __getitem__(self, index):
        gone = self.history(index)
        others = self.draws.easy() if self.epoch == 0 else self.draws.hard()
        known = set(gone)
        others = [walk if walk not in known else (walk + 1) % WALKS for walk in others]
        return torch.tensor(gone[:-1]), torch.tensor([gone[-1], *others])


class Walker(nn.Module):
    def __init__(self):
        super().__init__()
        self.walks = nn.Embedding(4096, 32)

    def forward(self, gone, candidates):
        person = self.walks(gone % 4096).mean(1)
        return torch.einsum("bd,bcd->bc", person, self.walks(candidates % 4096))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(41)
    torch.set_num_threads(1)
    data = People(Draws(modern=args.without))
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=1)
    model = Walker()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seconds = []
    for epoch in range(args.epochs):
        data.epoch = epoch
        begin = time.perf_counter()
        for gone, candidates in loader:
            scores = model(gone, candidates)
            loss = nn.functional.cross_entropy(scores, torch.zeros(len(gone), dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a larger model on an accelerator
        seconds.append(time.perf_counter() - begin)
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {sum(seconds):.3f}")
    del loader


if __name__ == "__main__":
    main()
