"""Computes samples, or training steps, with large arrays.

It prints the seconds of its loop, and the most memory that one of its processes had.

python tools/bench/gains/new_memory_train.py numpy|torch|steps [--mib 54] [--workers 2]
"""

import argparse
import resource
import time

import numpy as np
import torch
from torch import nn
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


class Pictures(Dataset[torch.Tensor]):
    """Pictures that take no time to make."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, 224, 224), float(index))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=("numpy", "torch", "steps"))
    parser.add_argument("--mib", type=float, default=54, help="size of an array")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    in_steps = options.library == "steps"
    if in_steps:
        data: Dataset[torch.Tensor] = Pictures()
        batch = max(1, round(options.mib / 6.125))  # a feature map of 32 x 224 x 224: 6.1 MiB
    else:
        data, batch = Volumes(options.mib, options.library == "torch"), BATCH
    kept = options.workers > 0
    loader = DataLoader(data, batch, num_workers=options.workers, persistent_workers=kept)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU()
    )
    begin = time.perf_counter()
    for _ in range(options.epochs):
        for samples in loader:
            if in_steps:
                model(samples).mean().backward()
            else:
                time.sleep(STEP_S)  # in place of a model on an accelerator
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader  # its workers end
    of_all = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    print(f"MiB {max(resource.getrusage(each).ru_maxrss for each in of_all) / 1024:.0f}")


if __name__ == "__main__":
    main()
