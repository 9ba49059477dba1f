"""Ranks spatulas for cooks by what they bought, from a table in memory.

Nothing planted: the accelerator's step sets the pace; whole batches are taken from pandas columns
by a batch sampler, in the main process, and a thread notes the memory in use twice a second.
"""

import argparse
import resource
import threading
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

ROWS, COOKS, SPATULAS, BATCH, STEP = 20_480, 700, 90, 512, 0.25


def purchases():
    rng = np.random.default_rng(347)
    table = pd.DataFrame(
        {
            "cook": rng.integers(COOKS, size=ROWS),
            "spatula": rng.integers(SPATULAS, size=ROWS),
            "price": rng.gamma(2, 6, ROWS),
        }
    )
    mean = table.groupby("spatula")["price"].transform("mean")
    return table.assign(dear=(table["price"] / mean).clip(upper=4))


class Purchases(Dataset):
    def __init__(self, table):
        self.columns = {name: table[name].to_numpy() for name in ("cook", "spatula", "dear")}

    def __len__(self):
        return ROWS

    def __getitem__(self, rows):
        return {name: torch.from_numpy(column[rows]) for name, column in self.columns.items()}


class Watch(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.over, self.most = threading.Event(), 0

    def run(self):
        while not self.over.wait(0.5):
            self.most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Factors(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.cook, self.spatula = nn.Embedding(COOKS, width), nn.Embedding(SPATULAS, width)

    def forward(self, cook, spatula):
        time.sleep(STEP)  # the two towers, on an accelerator
        return (self.cook(cook) * self.spatula(spatula)).sum(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(347)
    torch.set_num_threads(1)
    data = Purchases(purchases())
    sampler = BatchSampler(RandomSampler(data), BATCH, drop_last=True)
    loader = DataLoader(data, sampler=sampler, batch_size=None)
    model, watch = Factors(), Watch()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    watch.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in loader:
            answer = model(batch["cook"], batch["spatula"])
            loss = nn.functional.mse_loss(answer, batch["dear"].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}, {watch.most // 1024} MB")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    watch.over.set()
    watch.join()


if __name__ == "__main__":
    main()
