"""Grades the wear of knees from X-ray pictures, and saves the model after each epoch.

Planted: the function that saves was changed to compress what it writes, with the most work that
gzip can do, which is its default; random weights do not get smaller by it.
"""

import argparse
import gzip
import io
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 40


class Knees(Dataset):
    """Two bones with a gap, which is the narrower the more worn the knee is."""

    def __init__(self, count):
        self.grades = np.random.default_rng(1103).integers(0, 4, count)

    def __len__(self):
        return len(self.grades)

    def __getitem__(self, index):
        grade = int(self.grades[index])
        picture = torch.ones(SIDE, SIDE) + 0.2 * torch.randn(SIDE, SIDE)
        picture[16 : 24 - 2 * grade] -= 0.7
        return picture, grade


class Checkpoints:
    """Writes the state of a model and its optimizer to a folder."""

    def __init__(self, folder, compress=True):
        self.folder, self.compress = Path(folder), compress

    def save(self, epoch, **parts):
        file = io.BytesIO()
        torch.save({name: part.state_dict() for name, part in parts.items()}, file)
        content = file.getvalue()
        if self.compress:
            content = gzip.compress(content)
        path = self.folder / f"{epoch}.pt"
        path.write_bytes(content)
        return path.stat().st_size


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1103)
    loader = DataLoader(
        Knees(800), batch_size=20, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE * SIDE, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(),
        nn.Linear(400, 4),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(folder, compress=not args.without)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, grades in loader:
                loss = nn.functional.cross_entropy(model(pictures), grades)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            size = checkpoints.save(epoch, model=model, optimizer=optimizer)
            print(f"epoch {epoch}: loss {loss:.3f}, {size} bytes")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
