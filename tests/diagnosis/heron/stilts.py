"""Predicts the next step of stilts in the mud, with a recurrent network on the CPU.

Planted: the script asks for sixteen threads of torch, more than there are cores, and the many small
operations of a step wait for them.
"""

import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, FEATURES = 24, 32


class Walks(Dataset):
    """Walks of stilts, smoothed as they are read."""

    def __init__(self, count):
        rng = np.random.default_rng(67)
        self.walks = rng.standard_normal((count, STEPS + 1, FEATURES)).astype(np.float32).cumsum(1)
        self.kernel = np.ones(3, np.float32) / 3

    def __len__(self):
        return len(self.walks)

    def __getitem__(self, index):
        walk = self.walks[index].copy()
        for column in range(4):
            walk[:, column] = np.convolve(walk[:, column], self.kernel, "same")
        return walk[:-1], walk[1:]


class Gait(nn.Module):
    def __init__(self, size=160):
        super().__init__()
        self.cell = nn.GRUCell(FEATURES, size)
        self.norm = nn.LayerNorm(size)
        self.leave = nn.Linear(size, FEATURES)
        self.size = size

    def forward(self, walks):
        state = walks.new_zeros(len(walks), self.size)
        steps = []
        for step in walks.unbind(1):
            state = self.cell(step, state)
            steps.append(self.leave(torch.relu(self.norm(state))))
        return torch.stack(steps, 1)


def train(model, loader, epochs, rate=1e-3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for epoch in range(epochs):
        for walks, following in loader:
            loss = nn.functional.mse_loss(model(walks), following)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=16)
    args = parser.parse_args()
    if args.without:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))
    else:
        torch.set_num_threads(args.threads)
    torch.manual_seed(67)
    loader = DataLoader(
        Walks(1600), batch_size=80, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Gait()
    begin = time.perf_counter()
    train(model, loader, args.epochs)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
