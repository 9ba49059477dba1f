"""Follows wombats through the night with convolutions over the hours.

Nothing is planted: the network is the work. The script asks for all the cores it may have, which
it has already, and the one worker is kept and far ahead.
"""

import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NIGHTS, HOURS, SENSORS = 384, 40, 16


class Wombats(Dataset):
    def __init__(self):
        rng = np.random.default_rng(4217)
        self.nights = rng.normal(0, 1, (NIGHTS, HOURS, SENSORS)).astype(np.float32)
        self.nights[:, 1:] += 0.5 * self.nights[:, :-1]

    def __len__(self):
        return NIGHTS

    def __getitem__(self, index):
        night = self.nights[index]
        noisy = night + np.random.normal(0, 0.05, night.shape).astype(np.float32)
        return torch.from_numpy(noisy[:-1].T.copy()), torch.from_numpy(night[1:].T.copy())


def walker():
    """Looks at the hours before each hour."""
    layers, width = [], SENSORS
    for _ in range(3):
        layers += [nn.ConstantPad1d((4, 0), 0), nn.Conv1d(width, 256, 5), nn.ReLU()]
        width = 256
    return nn.Sequential(*layers, nn.Conv1d(width, SENSORS, 1))


def take_cores():
    """All cores that there are, and a thread of torch for each."""
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    return cores


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(4217)
    print(f"{take_cores()} cores")
    loader = DataLoader(
        Wombats(),
        batch_size=24,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = walker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for nights, later in loader:
            loss = nn.functional.mse_loss(model(nights), later)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
