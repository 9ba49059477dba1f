"""Finds fraud in a table of payments, of which few are fraud, so that those are drawn more often.

Planted: the sampler draws payment by payment with the weights as they are, which `choices` adds
up from the first to the last for each single one, in the main process.
"""

import argparse
import io
import random
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass
class Config:
    epochs: int
    summed: bool
    payments: int = 24_000
    drawn: int = 2400
    features: int = 20
    batch: int = 32
    accumulate: int = 2
    step: float = 0.008


def payments(config):
    """Reads the table, as it comes from the bank."""
    rng = np.random.default_rng(5099)
    values = rng.normal(0, 1, (config.payments, config.features)).round(3)
    frame = pd.DataFrame(values, columns=[f"f{number}" for number in range(config.features)])
    frame["fraud"] = (rng.random(config.payments) < 0.02).astype(int)
    frame.loc[frame["fraud"] == 1, "f3"] += 1.0
    return pd.read_csv(io.StringIO(frame.to_csv(index=False)))


class Payments(Dataset):
    def __init__(self, frame):
        self.fraud = frame.pop("fraud").to_numpy(np.float32)
        self.values = frame.to_numpy(np.float32)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        noise = np.random.normal(0, 0.02, self.values.shape[1]).astype(np.float32)
        return torch.from_numpy(self.values[index] + noise), torch.tensor(self.fraud[index])


class Oversampling(Sampler):
    """Draws as much fraud as honest payments."""

    def __init__(self, fraud, config):
        self.drawn, self.rng = config.drawn, random.Random(5101)
        share = float(fraud.mean())
        weights = [1 / share if bad else 1 / (1 - share) for bad in fraud]
        if config.summed:
            self.weights = {"cum_weights": list(np.cumsum(weights))}
        else:
            self.weights = {"weights": weights}
        self.population = range(len(fraud))

    def __len__(self):
        return self.drawn

    def __iter__(self):
        for _ in range(self.drawn):
            yield self.rng.choices(self.population, **self.weights)[0]


class Recall:
    def __init__(self):
        self.found = self.there = 0.0

    def add(self, scores, fraud):
        self.found += ((scores > 0) & (fraud > 0)).sum().item()
        self.there += fraud.sum().item()

    def value(self):
        return self.found / max(self.there, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5099)
    config = Config(args.epochs, summed=args.without)
    data = Payments(payments(config))
    loader = DataLoader(
        data,
        config.batch,
        sampler=Oversampling(data.fraud, config),
        num_workers=1,
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Linear(config.features, 128), nn.SELU(), nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    begin = time.perf_counter()
    for epoch in range(config.epochs):
        recall = Recall()
        for step, (values, fraud) in enumerate(loader, 1):
            scores = model(values).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, fraud)
            (loss / config.accumulate).backward()
            time.sleep(config.step)  # in place of the device
            if step % config.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
            recall.add(scores, fraud)
        print(f"epoch {epoch}: loss {loss:.3f}, recall {recall.value():.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
