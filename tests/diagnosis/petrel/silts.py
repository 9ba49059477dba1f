"""Learns from cores of silt, and keeps a prepared copy of each as a file beside it.

Planted: each sample is prepared and written again, and its worker waits until it is on the disk.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEPTHS, BANDS = 256, 16


class PreparedCores(Dataset):
    def __init__(self, folder, count, keep):
        self.folder, self.count, self.keep = Path(folder), count, keep
        self.cores = np.random.default_rng(257).random((40, DEPTHS, BANDS), dtype=np.float32)

    def __len__(self):
        return self.count

    def prepare(self, index):
        core = self.cores[index % len(self.cores)]
        return (core - core.mean(0)) / core.std(0)

    def store(self, path, prepared):
        """Write a copy so that it is whole or not there, whatever happens."""
        draft = path.with_suffix(f".{os.getpid()}")
        with open(draft, "wb") as file:
            np.save(file, prepared)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def __getitem__(self, index):
        prepared = self.prepare(index)
        path = self.folder / f"{index}.npy"
        if self.keep:
            self.store(path, prepared)
        return torch.from_numpy(prepared), index % 3


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(BANDS, 48, 5, 2), nn.ReLU(), nn.Conv1d(48, 48, 5, 2))
        self.head = nn.Linear(48, 3)

    def forward(self, cores):
        return self.head(self.body(cores.transpose(1, 2)).relu().mean(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(257)
    with tempfile.TemporaryDirectory() as folder:
        cores = PreparedCores(folder, 640, keep=not args.without)
        loader = DataLoader(
            cores, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
        )
        model = Layers()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for rows, layers in loader:
                scores = model(rows)
                loss = nn.functional.cross_entropy(scores, layers)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (scores.argmax(1) == layers).sum().item()
            print(f"epoch {epoch}: {right} of {len(cores)} right")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
