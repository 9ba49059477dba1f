"""Train on protein windows, with a cache of what was read."""

import argparse
import lzma
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate


class Windows(Dataset):
    def __init__(self, count):
        self.count = count
        self.residues = np.random.default_rng(0).integers(0, 20, 4096)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        start = (i * 37) % 3800
        return torch.from_numpy(np.eye(20, dtype=np.float32)[self.residues[start : start + 200]])


class CachingCollate:
    def __init__(self, every):
        self.every = every
        self.pending = []

    def __call__(self, samples):
        batch = default_collate(samples)
        self.pending.append(batch.numpy().tobytes())
        if self.every and len(self.pending) >= self.every:
            self.flush()
        return batch

    def flush(self):
        self.packed = lzma.compress(b"".join(self.pending), preset=6)
        self.pending.clear()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    collate = default_collate if args.without else CachingCollate(every=12)
    loader = DataLoader(
        Windows(3840), batch_size=32, shuffle=True, num_workers=args.workers, collate_fn=collate
    )
    begin = time.perf_counter()
    for _ in loader:
        time.sleep(0.007)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
