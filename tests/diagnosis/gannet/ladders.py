"""Learns how ladders bend, with a validation and a small checkpoint after each epoch.

Nothing is planted: recurrent cells are the work, in training as in validation. A worker is ahead of
the training; the validation needs none.
"""

import argparse
import copy
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RUNGS, FIELDS = 60, 12


class Ladders(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.rungs = rng.standard_normal((count, RUNGS, FIELDS)).astype(np.float32)

    def __len__(self):
        return len(self.rungs)

    def __getitem__(self, index):
        rungs = self.rungs[index]
        bent = np.convolve(rungs[:, 0], np.hanning(9), mode="same")
        return torch.from_numpy(rungs), torch.tensor(bent.std(), dtype=torch.float32)


class Bend(nn.Module):
    def __init__(self, size=128):
        super().__init__()
        self.memory = nn.LSTM(FIELDS, size, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * size, 1)

    def forward(self, rungs):
        return self.head(self.memory(rungs)[0].mean(1)).squeeze(1)


def train(model, loader, optimizer):
    begin = time.perf_counter()
    for rungs, bent in loader:
        loss = nn.functional.mse_loss(model(rungs), bent)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f} training, loss {loss.item():.4f}")


@torch.no_grad()
def validate(model, loader):
    begin = time.perf_counter()
    off = torch.stack([(model(rungs) - bent).abs().mean() for rungs, bent in loader]).mean()
    print(f"seconds {time.perf_counter() - begin:.3f} validation, {off:.4f} off")
    return off.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(613)
    training = DataLoader(
        Ladders(640, 613), batch_size=20, shuffle=True, num_workers=1, persistent_workers=True
    )
    validation = DataLoader(Ladders(240, 614), batch_size=60)
    model = Bend()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, kept = float("inf"), None
    for _ in range(args.epochs):
        train(model, training, optimizer)
        off = validate(model, validation)
        if off < best:
            best, kept = off, copy.deepcopy(model.state_dict())
    print(f"best {best:.4f}, {len(kept)} tensors kept")


if __name__ == "__main__":
    main()
