"""Classify frames of endoscopies; some patients' frames have been moved to an archive."""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision.transforms import v2

ARCHIVED_EVERY = 96


class Frames(Dataset):
    def __init__(self, count, archived):
        rng = np.random.default_rng(2)
        self.frames = rng.integers(0, 256, (48, 3, 80, 80), dtype=np.uint8)
        self.archived = {i for i in range(count) if i % ARCHIVED_EVERY == 5} if archived else set()
        self.count = count
        self.augment = v2.Compose(
            [
                v2.RandomCrop(64),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return self.count

    def read(self, index):
        # The archive is a robot that first has to fetch the tape.
        time.sleep(0.7 if index in self.archived else 0.002)
        return torch.from_numpy(self.frames[index % 48])

    def __getitem__(self, index):
        return {"frame": self.augment(self.read(index)), "polyp": index % 2}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="nothing is in the archive")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(1)

    frames = Frames(2304, archived=not args.without)
    loader = DataLoader(
        frames,
        batch_size=16,
        sampler=RandomSampler(frames),
        num_workers=args.workers,
        persistent_workers=True,
        drop_last=True,
    )
    begin = time.perf_counter()
    for _batch in loader:
        time.sleep(0.025)  # the accelerator's step
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
