"""Finds signs of a rare allergy, to paprika, in laboratory values of many patients.

Planted: the batch sampler, which takes no two visits of one patient, makes the list of all visits
that are left anew for each batch, and looks each of them up in the list of those taken.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

VISITS, PATIENTS, VALUES, BATCH, BATCHES, STEP = 60_000, 9_000, 40, 48, 70, 0.07


class Visits(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(257)
        self.values = torch.randn(VISITS, VALUES, generator=generator)
        self.patient = torch.randint(PATIENTS, (VISITS,), generator=generator).tolist()
        self.allergic = torch.rand(VISITS, generator=generator) < 0.1

    def __len__(self):
        return VISITS

    def __getitem__(self, index):
        values = self.values[index].clone()
        values[torch.rand(VALUES) < 0.05] = 0  # not measured
        ratios = values[: VALUES // 2] / (1 + values[VALUES // 2 :].abs())
        return torch.cat([values, ratios]), self.allergic[index].float()


class OneVisitEach(Sampler):
    """Gives batches in which no patient is twice."""

    def __init__(self, patient, size, batches, quick, seed=257):
        self.patient, self.size, self.batches = patient, size, batches
        self.quick, self.random = quick, random.Random(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        left = list(range(len(self.patient)))
        self.random.shuffle(left)
        for _ in range(self.batches):
            taken, seen = [], set()
            for visit in reversed(left):
                if self.patient[visit] not in seen:
                    seen.add(self.patient[visit])
                    taken.append(visit)
                if len(taken) == self.size:
                    break
            if self.quick:
                tail = left[-2 * self.size :]
                left[-2 * self.size :] = [visit for visit in tail if visit not in taken]
            else:
                left = [visit for visit in left if visit not in taken]
            yield taken


def build(args):
    data = Visits()
    sampler = OneVisitEach(data.patient, BATCH, BATCHES, quick=args.without)
    loader = DataLoader(data, batch_sampler=sampler, num_workers=3, persistent_workers=True)
    model = nn.Sequential(
        nn.Linear(VALUES * 3 // 2, 64), nn.SiLU(), nn.Dropout(0.2), nn.Linear(64, 1)
    )
    return loader, model, torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(257)
    torch.set_num_threads(1)
    loader, model, optimizer = build(args)
    weight = torch.tensor(9.0)
    for epoch in range(args.epochs):
        begin = time.perf_counter()
        for values, allergic in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(
                model(values).squeeze(1), allergic, pos_weight=weight
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the ensemble's other members, on a card
        print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
