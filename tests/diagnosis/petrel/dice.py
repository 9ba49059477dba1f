"""Learns the sea state from radar echoes, to which each worker adds noise and drop-outs.

Planted: the generator that draws them is made with the data set, so that every worker has a copy of
it in the same state and draws the same noise. It costs no time.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

RANGES, BEARINGS = 40, 36


class Echoes(Dataset):
    def __init__(self, count):
        self.rng = np.random.default_rng(283)
        self.echoes = self.rng.random((count, RANGES, BEARINGS), dtype=np.float32)
        self.states = (self.echoes[:, :4].mean((1, 2)) * 10).astype(np.float32)

    def __len__(self):
        return len(self.echoes)

    def __getitem__(self, index):
        echo = self.echoes[index] + self.rng.normal(0, 0.05, (RANGES, BEARINGS))
        echo[:, self.rng.integers(BEARINGS)] = 0
        if self.rng.random() < 0.5:
            echo = echo[:, ::-1].copy()
        return torch.from_numpy(echo).float(), self.states[index]


def make_generator(_):
    worker = get_worker_info()
    worker.dataset.rng = np.random.default_rng(worker.seed)


class SeaState(nn.Module):
    def __init__(self, size=160):
        super().__init__()
        self.turn = nn.GRU(RANGES, size, num_layers=2, batch_first=True)
        self.head = nn.Linear(size, 1)

    def forward(self, echoes):
        states, _ = self.turn(echoes.transpose(1, 2))
        return self.head(states[:, -1]).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(283)
    loader = DataLoader(
        Echoes(800),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        worker_init_fn=make_generator if args.without else None,
    )
    model = SeaState()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for echoes, states in loader:
            loss = nn.functional.mse_loss(model(echoes), states)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
