"""Planted: the files are not in the page cache. Prints how many bytes a read took from storage."""

import os
import resource
import sys
import time

from torch.utils.data import DataLoader, Dataset

SIZE = 16 << 20


def drop(file):
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path):
    with open(path, "rb", buffering=0) as file:
        size = len(file.read())
        drop(file)  # cold again for the next time
        return size


class Files(Dataset):
    def __init__(self, paths):
        self.samples = [(path, 0) for path in paths]
        self.loader = read

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.loader(self.samples[index][0])


def make(folder, number):
    """Write a file and drop it from the page cache."""
    path = os.path.join(folder, f"{number}.bin")
    with open(path, "wb") as file:
        file.write(os.urandom(SIZE))
        file.flush()
        os.fsync(file.fileno())
        drop(file)
    return path


if __name__ == "__main__":
    before = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
    read(make(sys.argv[1], 0))
    print((resource.getrusage(resource.RUSAGE_SELF).ru_inblock - before) * 512)
    paths = [make(sys.argv[1], number) for number in range(1, 17)] * 15
    for _ in DataLoader(Files(paths), batch_size=1, num_workers=1):
        time.sleep(0.0005)
