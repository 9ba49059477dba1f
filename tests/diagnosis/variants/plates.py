"""Count colonies on plates that were photographed in six bands, each in a file of its own."""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

BANDS = 6


class Share:
    """A network file system: the server answers each request to open a file after a while."""

    def __init__(self, latency):
        self.latency = latency

    def open(self, path):
        time.sleep(self.latency)
        return open(path, "rb")


class Plates(Dataset):
    def __init__(self, folder, count, share):
        self.folder = folder
        self.count = count
        self.share = share
        self.transform = v2.Compose(
            [v2.RandomCrop(56), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        bands = []
        for band in range(BANDS):
            with self.share.open(os.path.join(self.folder, f"{index % 20}-{band}.npy")) as file:
                bands.append(torch.from_numpy(np.load(file)))
        return self.transform(torch.stack(bands)), index % 30


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="a local disk")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    rng = np.random.default_rng(17)
    with tempfile.TemporaryDirectory() as folder:
        for plate in range(20):
            for band in range(BANDS):
                pixels = rng.integers(0, 256, (64, 64), dtype=np.uint8)
                np.save(os.path.join(folder, f"{plate}-{band}.npy"), pixels)
        share = Share(0 if args.without else 0.0025)
        loader = DataLoader(
            Plates(folder, 960, share),
            batch_size=16,
            shuffle=True,
            num_workers=args.workers,
            drop_last=True,
        )
        begin = time.perf_counter()
        for _plates, _colonies in loader:
            time.sleep(0.012)  # the accelerator's step
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
