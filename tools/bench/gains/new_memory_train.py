"""Iterates a loader whose samples are computed from large arrays, and prints its seconds.

python tools/bench/gains/new_memory_train.py numpy|torch [--mib 54] [--workers 2] [--epochs 3]
"""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, STEP_S = 24, 2, 0.02


class Volumes(Dataset[torch.Tensor]):
    """Normalises volumes of float32 and keeps every 64th voxel; `mib`: size of a volume."""

    def __init__(self, mib: float, in_torch: bool) -> None:
        depth = max(4, round(mib * (1 << 18) / 384**2))
        raw = np.random.default_rng(0).integers(0, 4000, (2, depth, 384, 384), dtype=np.int16)
        self.raw = torch.from_numpy(raw) if in_torch else raw

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        raw = self.raw[index % 2]
        volume = raw.float() if isinstance(raw, torch.Tensor) else raw.astype(np.float32)
        volume = (volume - 1000) / 500
        volume = volume.clip(-1, 1)
        volume = volume * volume
        volume = volume - volume.mean()
        return torch.as_tensor(volume[::4, ::4, ::4]).clone()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=("numpy", "torch"))
    parser.add_argument("--mib", type=float, default=54)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = Volumes(options.mib, options.library == "torch")
    kept = options.workers > 0
    loader = DataLoader(data, BATCH, num_workers=options.workers, persistent_workers=kept)
    begin = time.perf_counter()
    for _ in range(options.epochs):
        for _ in loader:
            time.sleep(STEP_S)  # in place of a model on an accelerator
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
