"""Predicts how far bodkins pierce, from measurements that are kept in compressed shards.

Planted: a batch is read as a slice of a shard, and the first batch of each shard waits until the
whole shard is decompressed.
"""

import argparse
import lzma
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, BATCHES_OF_SHARD, SHARDS, VALUES = 16, 24, 8, 2000


def write(folder, packed):
    """Write shards of rows, packed or as they are."""
    rng = np.random.default_rng(419)
    for number in range(SHARDS):
        rows = rng.integers(0, 900, (BATCH * BATCHES_OF_SHARD, VALUES)).astype(np.float32)
        path = Path(folder, f"{number}.npy")
        np.save(path, rows)
        if packed:
            Path(folder, f"{number}.npy.xz").write_bytes(lzma.compress(path.read_bytes(), preset=0))
            path.unlink()


class Shards(Dataset):
    """Rows of shards; the last shard that was used stays open."""

    def __init__(self, folder, packed):
        self.folder, self.packed = Path(folder), packed
        self.number, self.rows = None, None

    def __len__(self):
        return SHARDS * BATCHES_OF_SHARD * BATCH

    def open(self, number):
        path = self.folder / f"{number}.npy"
        if self.packed:
            data = lzma.decompress(Path(f"{path}.xz").read_bytes())
            rows = np.frombuffer(data, np.float32, offset=128).reshape(-1, VALUES)
        else:
            rows = np.load(path, mmap_mode="r")
        self.number, self.rows = number, rows

    def __getitem__(self, index):
        return self.__getitems__([index])[0]

    def __getitems__(self, indices):
        number, first = divmod(indices[0], BATCHES_OF_SHARD * BATCH)
        if number != self.number:
            self.open(number)
        rows = np.array(self.rows[first : first + len(indices)]) / 900
        depths = np.sort(rows, 1)[:, -20:].mean(1)
        return list(zip(torch.from_numpy(rows), torch.from_numpy(depths), strict=True))


class Depth(nn.Module):
    def __init__(self, size=256):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(VALUES, size), nn.GELU(), nn.Linear(size, size), nn.GELU(), nn.Linear(size, 1)
        )

    def forward(self, rows):
        return self.layers(rows).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(419)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, packed=not args.without)
        loader = DataLoader(
            Shards(folder, packed=not args.without), batch_size=BATCH, num_workers=1,
            persistent_workers=True,
        )  # fmt: skip
        model = Depth()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for rows, depths in loader:
                loss = nn.functional.mse_loss(model(rows), depths)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
