"""Count fish in clips of a reef, which each worker first unpacks to a scratch directory."""

import argparse
import io
import os
import shutil
import tarfile
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Clips(Dataset):
    def __init__(self, archive, count):
        self.archive = archive
        self.count = count
        self.scratch = None

    def __len__(self):
        return self.count

    def unpack(self):
        self.scratch = tempfile.mkdtemp(dir=os.path.dirname(self.archive))
        with tarfile.open(self.archive) as tar:
            tar.extractall(self.scratch, filter="data")

    def __getitem__(self, index):
        frames = np.load(os.path.join(self.scratch, f"{index % 160:04}.npy"))
        return torch.from_numpy(frames).float() / 255, index % 7


def unpack_to_scratch(_worker):
    get_worker_info().dataset.unpack()


def record(path):
    rng = np.random.default_rng(1)
    with tarfile.open(path, "w:xz", preset=1) as tar:
        for number in range(160):
            file = io.BytesIO()
            frames = rng.integers(0, 256, (4, 3, 48, 64), dtype=np.uint8) // 16
            np.save(file, frames)
            entry = tarfile.TarInfo(f"{number:04}.npy")
            entry.size = file.tell()
            file.seek(0)
            tar.addfile(entry, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="keep the workers between epochs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()

    folder = tempfile.mkdtemp()
    try:
        path = os.path.join(folder, "clips.tar.xz")
        record(path)
        loader = DataLoader(
            Clips(path, 480),
            batch_size=16,
            shuffle=True,
            num_workers=args.workers,
            worker_init_fn=unpack_to_scratch,
            persistent_workers=args.without,
        )
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for _clips, _fish in loader:
                time.sleep(0.012)  # the accelerator's step
        print(f"seconds {time.perf_counter() - begin:.3f}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
