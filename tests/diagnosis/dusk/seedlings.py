"""Seedlings by what each of their genes does: a memory map with a row for each gene."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GENES, SEEDLINGS = 20_000, 2400


class Seedlings(Dataset):
    """The activity of all genes of a seedling."""

    def __init__(self, path, by_gene):
        shape = (GENES, SEEDLINGS) if by_gene else (SEEDLINGS, GENES)
        table = np.memmap(path, np.float32, "r", shape=shape)
        self.table = table.T if by_gene else table
        self.chosen = np.sort(np.random.default_rng(53).permutation(GENES)[:512])

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        activity = np.array(self.table[index])
        activity /= activity.sum() / 1e4
        activity = np.log1p(activity)
        return torch.from_numpy(activity[self.chosen]), index % 6


def write(path, by_gene):
    rng = np.random.default_rng(53)
    part = rng.random((GENES // 20, SEEDLINGS), dtype=np.float32)
    table = np.tile(part, (20, 1))
    (table if by_gene else np.ascontiguousarray(table.T)).tofile(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(53)
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "activity.bin"
        write(path, by_gene=not args.without)
        data = Seedlings(path, by_gene=not args.without)
        loader = DataLoader(data, batch_size=24, shuffle=True, num_workers=1)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for activity, kinds in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(activity), kinds)
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
