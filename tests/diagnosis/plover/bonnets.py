"""Dresses heads in bonnets on an accelerator, for which a pause stands in.

Nothing is planted: the accelerator sets the pace. Four workers wait for a
slow bucket ahead of it.
"""

import argparse
import random
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SIDE, STEP, LATENCY = 72, 0.11, 0.006


class Bucket:
    """Gives each picture some time after it was asked for, one in thirty only the second time."""

    def __init__(self):
        self.base = np.random.default_rng(587).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
        self.refused = set()

    def get(self, name):
        time.sleep(LATENCY)
        if name % 30 == 7 and name not in self.refused:
            self.refused.add(name)
            raise ConnectionError(name)
        return np.roll(self.base, name, 0)


class Bonnets(Dataset):
    def __init__(self, count):
        self.bucket, self.count = Bucket(), count

    def __len__(self):
        return self.count

    def get(self, name):
        for attempt in range(3):
            try:
                return self.bucket.get(name)
            except ConnectionError:
                time.sleep(0.005 * 2**attempt * random.uniform(0.8, 1.2))
        raise ConnectionError(name)

    def __getitem__(self, index):
        picture = torch.from_numpy(self.get(index)).permute(2, 0, 1)
        mask = torch.zeros(SIDE, SIDE, dtype=torch.uint8)
        mask[: SIDE // 3] = 1
        return picture, mask


class Accelerator:
    """Takes some time for each batch, and no core."""

    def train(self, pictures, masks):
        time.sleep(STEP)
        return (pictures[:, 0].float() / 255 - masks).square().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(587)
    loader = DataLoader(
        Bonnets(300), batch_size=10, shuffle=True, num_workers=4,
        multiprocessing_context="fork", persistent_workers=True,
    )  # fmt: skip
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.train(*batch) for batch in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
