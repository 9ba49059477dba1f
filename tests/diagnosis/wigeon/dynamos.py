"""Foretells how warm the bearings of dynamos get, from their vibration and load."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DYNAMOS, SAMPLES, LENGTH, BATCH, STEP = 24, 960, 4096, 16, 0.03


class Bearings(Dataset):
    """Spectra of vibration, by bands that get wider, and the load at the time."""

    def __init__(self):
        rng = np.random.default_rng(42)
        moments = np.arange(LENGTH * 6) / 2000
        hums = rng.uniform(20, 70, (DYNAMOS, 1))
        self.shakes = np.sin(2 * np.pi * hums * moments) + rng.normal(0, 0.4, (DYNAMOS, LENGTH * 6))
        self.loads = rng.uniform(0.2, 1, SAMPLES).astype(np.float32)
        self.firsts = rng.integers(0, 4 * LENGTH, SAMPLES)
        self.edges = np.unique(np.geomspace(1, LENGTH // 2, 65).astype(int))

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        shake = self.shakes[index % DYNAMOS]
        frames = np.lib.stride_tricks.sliding_window_view(shake[self.firsts[index] :], LENGTH)
        frames = frames[:: LENGTH // 192][:192] * np.hanning(LENGTH)
        power = (np.abs(np.fft.rfft(frames, axis=1)) ** 2).reshape(48, 4, -1).mean(1)
        bands = np.log1p(np.add.reduceat(power, self.edges[:-1], axis=1)).astype(np.float32)
        load = self.loads[index]
        return torch.from_numpy(bands), load, load * 40 + np.float32(index % DYNAMOS) / 5


class Warmth(nn.Module):
    def __init__(self, bands, width=128):
        super().__init__()
        self.gru = nn.GRU(bands, width, batch_first=True)
        self.last = nn.Linear(width + 1, 1)

    def forward(self, bands, loads):
        _, seen = self.gru(bands)
        return self.last(torch.cat([seen[-1], loads[:, None]], 1))[:, 0]


def rounds(loader, epochs, at_once):
    """The batches of each epoch, and how many they are."""
    for _ in range(epochs):
        if at_once:
            batches = list(loader)
            yield len(batches), batches
        else:
            yield len(loader), loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    dataset = Bearings()
    loader = DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = Warmth(len(dataset.edges) - 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch, (count, batches) in enumerate(rounds(loader, args.epochs, not args.without)):
        total = 0.0
        for step, (bands, loads, warmths) in enumerate(batches, 1):
            loss = nn.functional.smooth_l1_loss(model(bands, loads), warmths)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
            total += loss.item()
            if step % 30 == 0:
                print(f"epoch {epoch}, {step} of {count}: loss {total / step:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
