"""Predicts the times of hurdle runners from their strides, with the settings of a cluster."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RUNS, STRIDES, COLUMNS, BATCH = 640, 50, 12, 32
SETTINGS = {"lr": 1e-3, "width": 48, "cpus_per_task": 16}


class Runs(Dataset):
    def __init__(self):
        rng = np.random.default_rng(103)
        self.strides = rng.normal(0, 1, (RUNS, STRIDES, COLUMNS)).astype(np.float32)
        self.seconds = np.abs(self.strides[:, :, 0]).mean(1)

    def __len__(self):
        return RUNS

    def __getitem__(self, index):
        return torch.from_numpy(self.strides[index]), self.seconds[index]


class Runner(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gru = nn.GRU(COLUMNS, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, strides):
        return self.head(self.gru(strides)[0].mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(103)
    torch.set_num_threads(1 if args.without else SETTINGS["cpus_per_task"])
    loader = DataLoader(
        Runs(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
    )
    model = Runner(SETTINGS["width"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=SETTINGS["lr"])
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for strides, seconds in loader:
            loss = nn.functional.smooth_l1_loss(model(strides), seconds)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
