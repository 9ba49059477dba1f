"""Segment kidneys; the decoder is said not to be thread-safe, so a lock guards it."""

import argparse
import contextlib
import multiprocessing
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

DECODER = multiprocessing.Lock()


def archive(path, reply_s=0.012):
    """The compressed bytes of a slice, as the hospital's archive hands them out."""
    time.sleep(reply_s)
    return path.read_bytes()


class Slices(Dataset):
    def __init__(self, files, guard):
        self.files = files
        self.guard = guard

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with self.guard():
            pixels = zlib.decompress(archive(self.files[index]))
        image = np.frombuffer(pixels, np.int16).reshape(96, 96).astype(np.float32)
        image = np.clip((image + 160) / 400, 0, 1)
        return torch.from_numpy(image)[None], torch.from_numpy(image > 0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number in range(240):
            files.append(Path(folder, f"slice{number:04}.bin"))
            files[-1].write_bytes(zlib.compress(rng.integers(-160, 240, 96 * 96, np.int16), 1))
        guard = contextlib.nullcontext if args.without else lambda: DECODER
        slices = Slices(files, guard)
        loader = DataLoader(slices, 8, True, num_workers=args.workers, persistent_workers=True)
        begin = time.perf_counter()
        for _epoch in range(3):
            for _images, _masks in loader:
                time.sleep(0.02)  # the step of the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
