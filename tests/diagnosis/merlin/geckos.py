"""Tells apart the toes of geckos in scans of surfaces, with workers from a fork server.

Planted: the environment sets a fixed threshold of malloc, above which each array of NumPy is
mapped, cleared and unmapped anew, so that the arithmetic of each sample spends its time on page
faults.
"""

import argparse
import multiprocessing
import os
import time
from multiprocessing import forkserver

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCANS, SIDE, TOES, BATCH, STEP = 240, 512, 4, 8, 0.02
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_MAX_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_ARENA_MAX": "2",
}


def prepare(without):
    """What the cluster's guide says on the environment of jobs."""
    for name, value in ENVIRONMENT.items():
        if not (without and name == "MALLOC_MMAP_THRESHOLD_"):
            os.environ[name] = value
    multiprocessing.set_forkserver_preload(["torch"])
    forkserver.ensure_running()
    torch.set_num_threads(1)


class Surfaces(Dataset):
    def __init__(self):
        rng = np.random.default_rng(47)
        self.scans = rng.normal(0, 1, (6, SIDE, SIDE)).astype(np.float32)
        self.toes = rng.integers(0, TOES, SCANS)

    def __len__(self):
        return SCANS

    def relief(self, height):
        """How rough the surface is at six scales."""
        rough = []
        for scale in (1, 2, 4, 8, 16, 32):
            along = height - np.roll(height, scale, 0)
            across = height - np.roll(height, scale, 1)
            steep = along * along + across * across
            rough.append(np.minimum(steep, 4 * np.float32(scale)))
        return sum(rough) * np.float32(0.1)

    def __getitem__(self, index):
        toe = int(self.toes[index])
        height = self.scans[index % len(self.scans)] * np.float32(1 + 0.2 * toe)
        relief = self.relief(height)
        small = relief.reshape(32, SIDE // 32, 32, SIDE // 32).mean((1, 3))
        return torch.from_numpy(small.astype(np.float32)), toe


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    prepare(args.without)
    torch.manual_seed(47)
    loader = DataLoader(
        Surfaces(),
        BATCH,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="forkserver",
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, TOES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for reliefs, toes in loader:
            loss = nn.functional.cross_entropy(model(reliefs), toes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a larger model on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
