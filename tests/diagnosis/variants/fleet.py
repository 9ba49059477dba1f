"""Predict the wear of lorries; programs that pack old runs are started beside the training."""

import argparse
import subprocess
import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PACK = """
import lzma, os
while os.getppid() != 1:
    lzma.compress(os.urandom(1 << 16) * 8, preset=9)
"""


class Lorries(Dataset):
    def __init__(self, count):
        self.waves = np.random.default_rng(20).normal(size=(64, 4096)).astype(np.float32)
        self.count = count
        self.transform = v2.Compose([v2.Lambda(torch.from_numpy), v2.GaussianNoise()])

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        wave = self.waves[index % 64]
        bands = [np.abs(np.fft.rfft(wave * np.hanning(4096) ** n)) for n in range(1, 14)]
        return self.transform(np.log1p(np.stack(bands)).astype(np.float32))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="pack the old runs another day")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)

    count = 0 if args.without else 12
    packers = [subprocess.Popen([sys.executable, "-c", PACK]) for _ in range(count)]
    try:
        loader = DataLoader(Lorries(1600), batch_size=20, num_workers=args.workers)
        begin = time.perf_counter()
        for _bands in loader:
            time.sleep(0.003)  # the accelerator's step
        print(f"seconds {time.perf_counter() - begin:.3f}")
    finally:
        for packer in packers:
            packer.kill()
            packer.wait()


if __name__ == "__main__":
    main()
