"""Predicts for how many days pumpkins keep, some of which were eaten before they went bad.

Planted: after each epoch, how many pairs of pumpkins are in the right order is counted pair by
pair, in Python.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PUMPKINS, CHECKED, MEASURES = 4000, 3000, 32


class Pumpkins(Dataset):
    def __init__(self):
        rng = np.random.default_rng(857)
        self.measures = rng.standard_normal((PUMPKINS, MEASURES)).astype(np.float32)
        self.days = rng.exponential(40 * np.exp(self.measures[:, 0])).astype(np.float32)
        self.eaten = rng.random(PUMPKINS) < 0.3

    def __len__(self):
        return PUMPKINS

    def __getitem__(self, index):
        return self.measures[index], self.days[index], self.eaten[index]


def hazard_loss(risk, days, eaten):
    """Return Cox's partial likelihood of a batch, negative."""
    order = days.argsort(descending=True)
    risk, bad = risk[order], ~eaten[order]
    return -((risk - risk.logcumsumexp(0)) * bad).sum() / bad.sum().clamp(min=1)


def concordance(risks, days, eaten):
    """Return the share of pairs in which the pumpkin with the higher risk went bad earlier."""
    right = pairs = 0
    for left in range(len(risks)):
        if eaten[left]:
            continue
        for other in range(len(risks)):
            if days[left] < days[other]:
                pairs += 1
                if risks[left] > risks[other]:
                    right += 1
                elif risks[left] == risks[other]:
                    right += 0.5
    return right / pairs


def quick_concordance(risks, days, eaten):
    risks, days, bad = np.array(risks), np.array(days), ~np.array(eaten)
    earlier = (days[:, None] < days[None]) & bad[:, None]
    return ((risks[:, None] > risks[None]) & earlier).sum() / earlier.sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(857)
    pumpkins = Pumpkins()
    loader = DataLoader(pumpkins, batch_size=50, shuffle=True)
    model = nn.Sequential(
        nn.Linear(MEASURES, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    measure = quick_concordance if args.without else concordance
    days, eaten = pumpkins.days[:CHECKED].tolist(), pumpkins.eaten[:CHECKED].tolist()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for measures, kept, eaten_early in loader:
            loss = hazard_loss(model(measures).squeeze(1), kept, eaten_early)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            risks = model(torch.from_numpy(pumpkins.measures[:CHECKED])).squeeze(1).tolist()
        print(f"epoch {epoch}: loss {loss:.3f}, in order {measure(risks, days, eaten):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
