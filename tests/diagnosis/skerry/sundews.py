"""Tells whether sundews have caught something, from small files that a pool of threads reads.

Nothing is planted: a transformer is the work. One worker reads all files of a batch at once, with
four threads, and keeps what it has read; a garbage collection ends each epoch.
"""

import argparse
import gc
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LEAVES, SIZE = 49, 64


class Sundews(Dataset):
    def __init__(self, paths, count=480):
        self.paths, self.count = paths, count
        self.pool, self.kept = None, {}

    def __len__(self):
        return self.count

    def load(self, index):
        path = self.paths[index % len(self.paths)]
        if path not in self.kept:
            self.kept[path] = torch.from_numpy(np.load(path))
        leaves = self.kept[path]
        return leaves + torch.randn(LEAVES, SIZE) * 0.05, index % 2

    def __getitems__(self, indices):
        if self.pool is None:
            self.pool = ThreadPoolExecutor(4)
        return list(self.pool.map(self.load, indices))

    def __getitem__(self, index):
        return self.load(index)


class Watcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(LEAVES, SIZE) * 0.02)
        layer = nn.TransformerEncoderLayer(SIZE, 4, 4 * SIZE, 0.1, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(SIZE, 2)

    def forward(self, leaves):
        return self.head(self.layers(leaves + self.places).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(109)
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(109)
        paths = [Path(folder, f"{number}.npy") for number in range(60)]
        for path in paths:
            np.save(path, rng.standard_normal((LEAVES, SIZE), dtype=np.float32))
        loader = DataLoader(
            Sundews(paths), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
        )
        model = Watcher()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for leaves, caught in loader:
                scores = model(leaves)
                loss = nn.functional.cross_entropy(scores, caught)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (scores.argmax(1) == caught).sum().item()
            gc.collect()
            print(f"epoch {epoch}: loss {loss.item():.4f}, {right} right")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
