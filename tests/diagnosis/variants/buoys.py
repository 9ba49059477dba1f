"""Stream the records of buoys from a store of many files, blocks of which go to each worker."""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FILES = 20
RECORDS = 120


class Buoys(IterableDataset):
    def __init__(self, files, block):
        self.files = files
        self.block = block

    def mine(self):
        worker = get_worker_info()
        if worker is None:
            return self.files
        block = self.block or -(-len(self.files) // worker.num_workers)
        return self.files[worker.id * block : (worker.id + 1) * block]

    def __iter__(self):
        for file in self.mine():
            rng = np.random.default_rng(file)
            for number in range(RECORDS):
                time.sleep(0.004)  # the store answers
                waves = rng.normal(size=(6, 256)).astype(np.float32)
                yield torch.from_numpy(np.abs(np.fft.rfft(waves)).astype(np.float32)), number % 4


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="equal blocks for all workers")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()

    # 16 files a worker were right for the store's first, far longer list of files.
    buoys = Buoys(list(range(FILES)), block=None if args.without else 16)
    loader = DataLoader(buoys, batch_size=20, num_workers=args.workers)
    begin = time.perf_counter()
    for _spectra, _seas in loader:
        time.sleep(0.005)  # the accelerator's step
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
