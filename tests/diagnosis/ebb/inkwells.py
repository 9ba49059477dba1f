"""Reads handwriting from one container file, whose library must not be entered twice."""

import argparse
import contextlib
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STROKES, COLUMNS = 256, 6
READ_S = 0.004


def write_container(path, count=1280, seed=3):
    rng = np.random.default_rng(seed)
    rng.normal(size=(count, STROKES, COLUMNS)).astype(np.float32).tofile(path)
    return rng.integers(30, size=count)


class Container:
    """One file of strokes on a server; a read takes a few milliseconds."""

    def __init__(self, path, guard):
        self.path, self.guard = path, guard

    def read(self, index):
        with self.guard, open(self.path, "rb") as file:
            size = STROKES * COLUMNS
            file.seek(index * size * 4)
            time.sleep(READ_S)
            values = np.fromfile(file, np.float32, size)
        return values.reshape(STROKES, COLUMNS)


class Handwriting(Dataset):
    def __init__(self, container, writers):
        self.container, self.writers = container, writers

    def __len__(self):
        return len(self.writers)

    def __getitem__(self, index):
        strokes = self.container.read(index)
        strokes = np.diff(strokes, axis=0)
        return torch.from_numpy(strokes.cumsum(0) / 8), int(self.writers[index])


class WriterNet(nn.Module):
    def __init__(self, writers=30):
        super().__init__()
        self.body = nn.Conv1d(COLUMNS, 32, 9, stride=3)
        self.head = nn.Linear(32, writers)

    def forward(self, strokes):
        return self.head(self.body(strokes.transpose(1, 2)).relu().mean(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    guard = contextlib.nullcontext() if args.without else multiprocessing.Lock()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "strokes.bin")
        writers = write_container(path)
        loader = DataLoader(
            Handwriting(Container(path, guard), writers),
            batch_size=32, shuffle=True, num_workers=4, persistent_workers=True,
        )  # fmt: skip
        model = WriterNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for strokes, labels in loader:
                loss = nn.functional.cross_entropy(model(strokes), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
