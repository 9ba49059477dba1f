"""Foresees the power of cyclists from files of their rides, shared out among two workers.

Nothing planted: the accelerator's step sets the pace; the workers of an iterable data set read the
rides from a slow drive and mix windows in a buffer ahead of it.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

RIDES, SECONDS, CHANNELS, WINDOW, BATCH, DRIVE, STEP = 32, 1800, 5, 60, 16, 0.05, 0.17


def write_rides(folder):
    rng = np.random.default_rng(1109)
    for ride in range(RIDES):
        values = rng.normal(0, 1, (SECONDS, CHANNELS)).cumsum(0).astype(np.float32)
        np.savez_compressed(Path(folder, f"ride-{ride:03}.npz"), values=values)


class Rides(IterableDataset):
    def __init__(self, folder, buffer=64):
        self.files = sorted(Path(folder).glob("ride-*.npz"))
        self.buffer = buffer

    def windows(self):
        worker = get_worker_info()
        files = self.files[worker.id :: worker.num_workers] if worker else list(self.files)
        random.shuffle(files)
        for path in files:
            time.sleep(DRIVE)  # the drive
            with np.load(path) as ride:
                values = ride["values"]
            for start in range(0, SECONDS - WINDOW, WINDOW):
                window = values[start : start + WINDOW]
                yield torch.from_numpy(window - window[0]), values[start + WINDOW, 0] - window[0, 0]

    def __iter__(self):
        held = []
        for window in self.windows():
            held.append(window)
            if len(held) >= self.buffer:
                place = random.randrange(len(held))
                held[place], held[-1] = held[-1], held[place]
                yield held.pop()
        random.shuffle(held)
        yield from held


class Power(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.GRU(CHANNELS, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, windows):
        hidden, _ = self.cells(windows[:, ::4])
        time.sleep(STEP)  # the long model, on an accelerator
        return self.out(hidden[:, -1]).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1109)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_rides(folder)
        loader = DataLoader(Rides(folder), BATCH, num_workers=2, persistent_workers=True)
        model = Power()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (windows, power) in enumerate(loader, 1):
                loss = nn.functional.smooth_l1_loss(model(windows), power)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % 20 == 0:
                    print(f"epoch {epoch} step {step}: loss {loss:.3f}", flush=True)
            torch.save(model.state_dict(), Path(folder, "last.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
