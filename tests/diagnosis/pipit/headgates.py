"""Detects leaks of headgates in the noise of a canal, with convolutions on the processor.

Nothing planted: the network is the work, on one thread; one worker cuts and filters the noise ahead
of it, and the state is saved after each epoch.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SENSORS, LENGTH, CUT, CUTS, BATCH = 20, 40_000, 4096, 640, 16


class Noise(Dataset):
    def __init__(self):
        rng = np.random.default_rng(79)
        self.noise = rng.normal(0, 1, (SENSORS, LENGTH)).astype(np.float32)

    def __len__(self):
        return CUTS

    def __getitem__(self, index):
        start = np.random.randint(LENGTH - CUT)
        cut = self.noise[index % SENSORS, start : start + CUT]
        spectrum = np.fft.rfft(cut)
        spectrum[:20] = 0
        cut = np.fft.irfft(spectrum).astype(np.float32)
        return torch.from_numpy(cut / cut.std())[None], index % SENSORS % 2


def block(before, after):
    return nn.Sequential(
        nn.Conv1d(before, after, 9, padding=4), nn.BatchNorm1d(after), nn.ReLU(), nn.MaxPool1d(4)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(79)
    torch.set_num_threads(1)
    loader = DataLoader(Noise(), BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(
        block(1, 32), block(32, 64), block(64, 96), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(96, 2),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for cuts, leaks in loader:
                loss = nn.functional.cross_entropy(model(cuts), leaks)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            scheduler.step()
            torch.save(model.state_dict(), Path(folder, f"{epoch}.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
