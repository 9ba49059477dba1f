"""Recommends sweaters on an accelerator, for which a pause stands in, until it gets no better.

Nothing is planted: the accelerator sets the pace. Four workers hide a shop's latency, which one
request in forty has six times; the best state is saved, and a validation follows each epoch.
"""

import argparse
import copy
import io
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PEOPLE, SWEATERS, STEP, LATENCY = 500, 200, 0.1, 0.005


class Shop:
    """Tells what a person bought, after some time."""

    def __init__(self):
        self.bought = np.random.default_rng(937).integers(0, SWEATERS, (PEOPLE, 8))

    def ask(self, person):
        time.sleep(LATENCY * (6 if person % 40 == 3 else 1))
        return self.bought[person]


class Purchases(Dataset):
    def __init__(self, people):
        self.shop, self.people = Shop(), people

    def __len__(self):
        return len(self.people)

    def __getitem__(self, index):
        person = self.people[index]
        bought = torch.from_numpy(self.shop.ask(person))
        return person, torch.zeros(SWEATERS).scatter_(0, bought, 1.0)


class Accelerator:
    """Factors the purchases of people; takes some time for each batch, and no core."""

    def __init__(self):
        self.people, self.sweaters = torch.randn(PEOPLE, 8) * 0.1, torch.randn(SWEATERS, 8) * 0.1

    def error(self, people, bought):
        return self.people[people] @ self.sweaters.T - bought

    def train(self, people, bought):
        time.sleep(STEP)
        error = self.error(people, bought)
        self.people[people] -= 0.02 * error @ self.sweaters
        self.sweaters -= 0.02 * error.T @ self.people[people]
        return error.square().mean().item()

    def save(self):
        file = io.BytesIO()
        torch.save(copy.deepcopy(self.__dict__), file)
        return file.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(937)
    people = torch.randperm(PEOPLE).tolist()
    kept = {"num_workers": 4, "persistent_workers": True, "multiprocessing_context": "fork"}
    training = DataLoader(Purchases(people[:360]), batch_size=12, shuffle=True, **kept)
    validation = DataLoader(Purchases(people[360:]), batch_size=35, **kept)
    accelerator, best, saved = Accelerator(), float("inf"), b""
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.train(*batch) for batch in training]
        errors = []
        for batch in validation:
            time.sleep(STEP / 2)
            errors.append(accelerator.error(*batch).square().mean().item())
        mean = sum(errors) / len(errors)
        print(f"epoch {epoch}: loss {losses[-1]:.4f}, error {mean:.4f}, saved {len(saved)}")
        if mean > 1.02 * best:
            break
        best, saved = min(best, mean), accelerator.save()
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, validation


if __name__ == "__main__":
    main()
