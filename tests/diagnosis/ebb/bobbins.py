"""Finds faulty bobbins in a factory's records: 180 named measurements a bobbin."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    """Records as the factory's interface returns them, or as one row each."""

    def __init__(self, count=3200, measurements=180, as_rows=False, seed=7):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(count, measurements)).astype(np.float32)
        self.faults = (values[:, :3].sum(1) > 2).astype(np.float32)
        names = [f"measurement_{number:03d}" for number in range(measurements)]
        if as_rows:
            self.records = [{"row": row} for row in values]
        else:
            self.records = [dict(zip(names, row, strict=True)) for row in values.tolist()]

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.records[index], self.faults[index]


def as_table(record):
    """A tensor of batch x measurements, from whichever form a batch has."""
    columns = list(record.values())
    return columns[0] if len(columns) == 1 else torch.stack(columns, 1).float()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=24)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    loader = DataLoader(Records(as_rows=args.without), batch_size=64, shuffle=True)
    model = nn.Sequential(
        nn.Linear(180, 512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.GELU(),
        nn.Linear(512, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for record, faults in loader:
            scores = model(as_table(record)).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, faults)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
