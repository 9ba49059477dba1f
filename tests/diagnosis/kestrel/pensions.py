"""Foretells when people will draw their pensions, from a table in memory.

Nothing planted: the accelerator's step sets the pace; there are no workers, as a batch is one
look-up of many rows at once, and a sampler hands out whole batches.
"""

import argparse
import time

import pandas as pd
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

PEOPLE, BATCH, STEP = 12_800, 256, 0.11


def make_table():
    generator = torch.Generator().manual_seed(1381)
    values = torch.rand(PEOPLE, 6, generator=generator).numpy()
    table = pd.DataFrame(values, columns=["age", "wage", "years", "region", "health", "savings"])
    table["draws"] = 60 + 7 * table["wage"] - 4 * table["health"] + table["savings"]
    return table


class Rows(Dataset):
    def __init__(self, table):
        self.inputs = torch.from_numpy(table.drop(columns="draws").to_numpy("float32"))
        self.draws = torch.from_numpy(table["draws"].to_numpy("float32"))

    def __len__(self):
        return len(self.draws)

    def __getitem__(self, rows):
        inputs = self.inputs[rows]
        return inputs + 0.01 * torch.randn_like(inputs), self.draws[rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1381)
    torch.set_num_threads(1)
    rows = Rows(make_table())
    batches = BatchSampler(RandomSampler(rows), BATCH, drop_last=False)
    loader = DataLoader(rows, sampler=batches, batch_size=None)
    model = nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for inputs, draws in loader:
            loss = nn.functional.smooth_l1_loss(model(inputs).squeeze(1), draws)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            time.sleep(STEP)  # in place of an ensemble on an accelerator
        print(f"epoch {epoch}: off by {loss:.2f} years")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
