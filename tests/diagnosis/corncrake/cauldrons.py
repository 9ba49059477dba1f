"""Looks for nodules, round as cauldrons, in small blocks of CT volumes."""

import argparse
import os
import sys
import time

# as on the machine with the many cores
os.environ["OMP_NUM_THREADS"] = "1" if "--without" in sys.argv else "12"

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BLOCKS, SIDE, BATCH = 240, 20, 8


class Blocks(Dataset):
    def __init__(self):
        rng = np.random.default_rng(107)
        grid = np.mgrid[:SIDE, :SIDE, :SIDE]
        ball = np.square(grid - SIDE // 2).sum(0) < 25
        self.labels = rng.integers(0, 2, BLOCKS)
        self.volumes = rng.normal(0, 200, (BLOCKS, SIDE, SIDE, SIDE)).astype(np.int16)
        self.volumes += (150 * ball * self.labels[:, None, None, None]).astype(np.int16)

    def __len__(self):
        return BLOCKS

    def __getitem__(self, index):
        volume = np.clip(self.volumes[index], -400, 400) / 400
        for axis in range(3):
            if np.random.random() < 0.5:
                volume = np.flip(volume, axis)
        return torch.from_numpy(volume.astype(np.float32)).unsqueeze(0), int(self.labels[index])


def network():
    return nn.Sequential(
        nn.Conv3d(1, 6, 3),
        nn.GroupNorm(2, 6),
        nn.SiLU(),
        nn.Conv3d(6, 8, 3, stride=2),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.Conv3d(8, 8, 3),
        nn.SiLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(8, 2),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(107)
    loader = DataLoader(
        Blocks(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=1,
        multiprocessing_context="forkserver",
        persistent_workers=True,
    )
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for volumes, labels in loader:
            loss = nn.functional.cross_entropy(model(volumes), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
