"""Predicts the colour of vats of dye; measurements are kept in one file that many may open."""

import argparse
import fcntl
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROW = 256


class Vats(Dataset):
    """Rows of a file on a slow share; a lock file keeps others from writing meanwhile."""

    def __init__(self, path, count=1000, locked=True):
        self.path, self.count, self.locked = path, count, locked

    def __len__(self):
        return self.count

    def read(self, index):
        with self.path.open("rb") as file:
            file.seek(index * ROW * 4)
            row = np.frombuffer(file.read(ROW * 4), dtype=np.float32)
        time.sleep(0.004)  # the share answers
        return torch.from_numpy(row.copy())

    def __getitem__(self, index):
        if not self.locked:
            return self.finish(self.read(index))
        guard = os.open(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(guard, fcntl.LOCK_EX)
            row = self.read(index)
        finally:
            os.close(guard)
        return self.finish(row)

    def finish(self, row):
        smooth = nn.functional.avg_pool1d(row[None, None], 9, 1, 4)[0, 0]
        return torch.stack([row, smooth]), smooth.mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(41)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vats.f32")
        vats = Vats(path, locked=not args.without)
        rng = np.random.default_rng(41)
        rng.normal(size=(len(vats), ROW)).astype(np.float32).tofile(path)
        loader = DataLoader(
            vats, batch_size=20, shuffle=True, num_workers=4, persistent_workers=True
        )
        model = nn.Sequential(
            nn.Conv1d(2, 16, 7, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(16 * 125, 1)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for rows, colours in loader:
                loss = nn.functional.mse_loss(model(rows).squeeze(1), colours)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: last loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
