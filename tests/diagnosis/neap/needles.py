"""Finds needles in scans of haystacks; the model runs on a device that another machine has."""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Haystacks(Dataset):
    """Scans, made small."""

    def __init__(self, count=640, seed=48):
        rng = np.random.default_rng(seed)
        self.scans = rng.integers(0, 256, (32, 160, 160), dtype=np.uint8)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        scan = Image.fromarray(self.scans[index % len(self.scans)])
        scan = scan.resize((64, 64), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.asarray(scan, dtype=np.float32) / 255), index % 2


class Device:
    """Stands for the other machine: its answer takes a while, and no core of this one."""

    def __init__(self, answer=0.12):
        self.answer, self.loss = answer, 1.0

    def train(self, scans, needles):
        time.sleep(self.answer)
        self.loss = 0.98 * self.loss + 0.02 * float(scans.mean())
        return self.loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(48)
    loader = DataLoader(
        Haystacks(), batch_size=20, shuffle=True, num_workers=1, prefetch_factor=4,
        persistent_workers=True,
    )  # fmt: skip
    device = Device()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for scans, needles in loader:
            loss = device.train(scans, needles)
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
