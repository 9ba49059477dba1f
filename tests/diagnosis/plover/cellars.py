"""Learns the temperatures of cellars, hour by hour, with a transformer.

Nothing is planted: the transformer is the work. Windows are cut from one array in memory, a whole
batch at a time and without workers; the best weights are copied after each epoch.
"""

import argparse
import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOURS, CELLARS, SERIES = 48, 16, 6000


class Windows(Dataset):
    """Windows of a long series, which are asked for by lists of their beginnings."""

    def __init__(self, count):
        draws = torch.Generator().manual_seed(593)
        steps = torch.randn(SERIES, CELLARS, generator=draws)
        self.series = steps.cumsum(0) / 30
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.series[index : index + HOURS + 1]

    def __getitems__(self, indices):
        places = torch.tensor(indices)[:, None] + torch.arange(HOURS + 1)
        return self.series[places]


def keep(batch):
    """Return a batch as it is: the data set has made it."""
    return batch


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.widen, self.narrow = nn.Linear(CELLARS, 96), nn.Linear(96, CELLARS)
        layer = nn.TransformerEncoderLayer(96, 4, 192, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(HOURS))

    def forward(self, hours):
        return self.narrow(self.encoder(self.widen(hours), mask=self.mask))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(593)
    loader = DataLoader(Windows(960), batch_size=32, shuffle=True, collate_fn=keep)
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, args.epochs * len(loader))
    best, weights = float("inf"), None
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for windows in loader:
            loss = nn.functional.huber_loss(model(windows[:, :-1]), windows[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        if total < best:
            best, weights = total, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    print(f"kept {len(weights)} tensors")


if __name__ == "__main__":
    main()
