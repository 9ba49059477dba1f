"""Predicts how many turnips a field bears from the measurements of its soil, of uneven number."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

FIELDS, MOST, QUANTITIES, BATCH = 1920, 160, 8, 48
MEANS = np.linspace(-1, 1, QUANTITIES, dtype=np.float32)


class Fields(Dataset):
    def __init__(self):
        rng = np.random.default_rng(61)
        counts = rng.integers(20, MOST, FIELDS)
        self.soils = [
            rng.normal(MEANS, 1, (count, QUANTITIES)).astype(np.float32) for count in counts
        ]
        self.yields = [float(soil[:, 0].mean() * soil[:, 3].std()) for soil in self.soils]

    def __len__(self):
        return FIELDS

    def __getitem__(self, index):
        return self.soils[index], self.yields[index]


def by_rows(samples):
    """Makes all fields as long as the longest."""
    longest = max(len(soil) for soil, _ in samples)
    table, mask = [], []
    for soil, _ in samples:
        rows = []
        for row in soil:
            rows.append(
                [float(value) - float(mean) for value, mean in zip(row, MEANS, strict=True)]
            )
        present = [1.0] * len(rows)
        while len(rows) < longest:
            rows.append([0.0] * QUANTITIES)
            present.append(0.0)
        table.append(rows)
        mask.append(present)
    return torch.tensor(table), torch.tensor(mask), torch.tensor([y for _, y in samples])


def by_fields(samples):
    soils = [torch.from_numpy(soil - MEANS) for soil, _ in samples]
    table = pad_sequence(soils, batch_first=True)
    mask = pad_sequence([torch.ones(len(soil)) for soil in soils], batch_first=True)
    return table, mask, torch.tensor([y for _, y in samples])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(QUANTITIES, 32), nn.ReLU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, 1)

    def forward(self, table, mask):
        weights = mask.unsqueeze(2)
        mean = (self.each(table) * weights).sum(1) / weights.sum(1)
        return self.head(mean.relu()).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(61)
    torch.set_num_threads(1)
    loader = DataLoader(
        Fields(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=by_fields if args.without else by_rows,
    )
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for table, mask, yields in loader:
            loss = nn.functional.mse_loss(model(table, mask), yields)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
