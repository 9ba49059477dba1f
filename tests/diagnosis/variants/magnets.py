"""Segment heads in magnetic resonance volumes, which leave the workers as float64."""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Heads(Dataset):
    def __init__(self, count, late):
        rng = np.random.default_rng(15)
        self.heads = rng.integers(0, 4096, (4, 2, 48, 112, 112), dtype=np.int16)
        self.count = count
        self.late = late

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        head = self.heads[index % 4]
        if self.late:
            return torch.from_numpy(head)
        return torch.from_numpy(head.astype(np.float64))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="send int16, convert it later")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)

    loader = DataLoader(Heads(600, args.without), 4, num_workers=args.workers)
    begin = time.perf_counter()
    for heads in loader:
        # Half the resolution is what the model sees.
        seen = heads[..., ::2, ::2].float() / 4096
        time.sleep(0.005)  # the accelerator's step
        assert seen.dtype == torch.float32
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
