"""Recognise cows in crops of one large file, of which nothing stays in the page cache."""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

CROP = 256 * 1024
CROPS = 1200


class Herd(Dataset):
    """Each crop comes in pieces from all over the file, as its columns were stored."""

    def __init__(self, path, forget):
        self.path = path
        self.forget = forget
        self.file = None

    def __len__(self):
        return CROPS

    def __getitem__(self, index):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
        pieces = []
        for column in range(64):
            place = (index * 64 + column) * 7919 % (CROPS * 64) * 4096
            if self.forget:
                os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)
            pieces.append(np.frombuffer(os.pread(self.file, 4096, place), np.uint8))
            if self.forget:
                os.posix_fadvise(self.file, place, 4096, os.POSIX_FADV_DONTNEED)
        return torch.from_numpy(np.stack(pieces)[:, ::16].astype(np.float32)), index % 30


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="leave the file in the page cache")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "herd.bin")
        block = np.random.default_rng(22).bytes(CROP)
        with open(path, "wb") as file:
            for _ in range(CROPS):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            if not args.without:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        herd = Herd(path, forget=not args.without)
        loader = DataLoader(herd, batch_size=12, shuffle=True, num_workers=args.workers)
        begin = time.perf_counter()
        for _crops, _cows in loader:
            time.sleep(0.004)  # the accelerator's step
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
