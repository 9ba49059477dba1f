"""Judges pears by measures, of which an expert has labelled some more in each of many rounds.

Planted: each round joins its pears to the data set of the round before, so that to find a pear
hundreds of data sets are searched, one within the other.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

ROUNDS, PER_ROUND, MEASURES = 600, 20, 32


class Round(Dataset):
    """The pears that were labelled in one round."""

    def __init__(self, measures, grades):
        self.measures, self.grades = measures, grades

    def __len__(self):
        return len(self.grades)

    def __getitem__(self, index):
        return self.measures[index], self.grades[index]


def label_rounds():
    draws = torch.Generator().manual_seed(463)
    for _ in range(ROUNDS):
        measures = torch.randn(PER_ROUND, MEASURES, generator=draws)
        yield Round(measures, (measures[:, :4].sum(1) > 0).long())


def join_rounds(rounds, flat):
    """Return all labelled pears, joined at once or as the rounds came."""
    if flat:
        return ConcatDataset(rounds)
    labelled = next(rounds)
    for more in rounds:
        labelled = ConcatDataset([labelled, more])
    return labelled


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(463)
    pears = join_rounds(label_rounds(), args.without)
    loader = DataLoader(pears, batch_size=90, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(
        nn.Linear(MEASURES, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 64), nn.ReLU(),
        nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for measures, grades in loader:
            scores = model(measures + 0.05 * torch.randn_like(measures))
            loss = nn.functional.cross_entropy(scores, grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == grades).sum().item()
        print(f"epoch {epoch}: right {right / len(pears):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
