"""Predicts when a loom will break a thread, from the vibrations of its shafts."""

import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHAFTS, LENGTH = 12, 256


class Looms(Dataset):
    """Vibrations with noise, smoothed and normalised by numpy."""

    def __init__(self, count=560):
        rng = np.random.default_rng(55)
        self.base = rng.normal(size=(64, SHAFTS, LENGTH)).astype(np.float32)
        self.hours = rng.exponential(size=count).astype(np.float32)

    def __len__(self):
        return len(self.hours)

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        waves = self.base[index % 64] + 0.1 * rng.normal(size=(SHAFTS, LENGTH))
        kernel = np.hanning(31)
        waves = np.stack([np.convolve(wave, kernel / kernel.sum(), "same") for wave in waves])
        power = np.abs(np.fft.rfft(waves, 4 * LENGTH, axis=1))[:, :LENGTH]
        waves = np.concatenate([waves, np.log1p(power)])
        waves -= waves.mean(1, keepdims=True)
        return torch.from_numpy(waves.T.astype(np.float32)), self.hours[index]


class Predictor(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.enter = nn.Linear(2 * SHAFTS, hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.GELU())
            for _ in range(8)
        )
        self.head = nn.Linear(hidden, 1)

    def forward(self, waves):
        states = self.enter(waves)
        for block in self.blocks:
            states = states + block(states)
        return self.head(states.mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    threads = int(os.environ.get("SLURM_CPUS_PER_TASK", 8))  # as the cluster's nodes have
    torch.set_num_threads(1 if args.without else threads)
    torch.manual_seed(55)
    loader = DataLoader(
        Looms(), batch_size=16, shuffle=True, num_workers=2, drop_last=True,
        persistent_workers=True,
    )  # fmt: skip
    model = Predictor()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        running = 0.0
        for waves, hours in loader:
            loss = nn.functional.l1_loss(model(waves), hours)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch}: mean error {running / len(loader):.4f} h")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
