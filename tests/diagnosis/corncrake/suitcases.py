"""Predicts whether a lost suitcase is found again, from the claims of an airport."""

import argparse
import multiprocessing
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

CLAIMS, DRAWS, BATCH = 200_000, 2048, 64
COLUMNS = ("weight", "length", "height", "hours", "flights")


def read_claims():
    """The claims, as the API of the airport gives them."""
    rng = random.Random(89)
    return [
        {
            "number": f"claim-{number:07}",
            "colour": f"{rng.randrange(1 << 24):06x}",
            "values": {column: rng.gauss(0, 1) for column in COLUMNS},
            "found": rng.random() < 0.5,
        }
        for number in range(CLAIMS)
    ]


def to_columns(claims):
    values = [[claim["values"][column] for column in COLUMNS] for claim in claims]
    return np.array(values, np.float32), np.array([claim["found"] for claim in claims], np.float32)


class Claims(Dataset):
    def __init__(self, claims):
        self.claims = claims

    def __len__(self):
        return len(self.claims)

    def __getitem__(self, index):
        claim = self.claims[index]
        values = [claim["values"][column] for column in COLUMNS]
        return torch.tensor(values), float(claim["found"])


class Columns(Dataset):
    def __init__(self, claims):
        self.values, self.found = to_columns(claims)

    def __len__(self):
        return len(self.found)

    def __getitem__(self, index):
        return torch.from_numpy(self.values[index]), float(self.found[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(89)
    torch.set_num_threads(1)
    multiprocessing.set_forkserver_preload(["torch", "numpy"])
    data = (Columns if args.without else Claims)(read_claims())
    loader = DataLoader(
        data,
        batch_size=BATCH,
        sampler=RandomSampler(data, num_samples=DRAWS),
        num_workers=2,
        multiprocessing_context="forkserver",
    )
    model = nn.Sequential(nn.Linear(len(COLUMNS), 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for values, found in loader:
            logits = model(values).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, found.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
