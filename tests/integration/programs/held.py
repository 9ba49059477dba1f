"""What a loader's processes hold in /dev/shm while its consumer stands still, and as it goes on.

Argument: a JSON list of [workers, prefetch factor, tensors in a sample, samples in a batch, floats
in a tensor]. Prints a JSON object for each; bytes are of distinct files, as the kernel has
allocated them.
"""

import json
import multiprocessing
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Tensors(Dataset):
    def __init__(self, tensors, floats, length):
        self.tensors, self.floats, self.length = tensors, floats, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return [torch.full((self.floats,), float(index)) for _ in range(self.tensors)]


def held(pids):
    """({inode: bytes} of deleted files in /dev/shm that are open, most descriptors of one pid)."""
    files, most = {}, 0
    for pid in pids:
        count = 0
        for fd in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            try:
                if os.readlink(path).startswith("/dev/shm/torch_"):
                    status = os.stat(path)
                    files[status.st_ino] = status.st_blocks * 512
                    count += 1
            except OSError:
                continue  # closed since
        most = max(most, count)
    return files, most


def watch(workers, prefetch, tensors, size, floats):
    full = workers * prefetch
    data = Tensors(tensors, floats, size * full * 3)
    loader = DataLoader(data, size, num_workers=workers, prefetch_factor=prefetch)
    batches = iter(loader)
    batch = next(batches)
    pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    # Until all is made that was asked for: as many files, and none of them grows any more.
    wanted, before = (full + 1) * tensors, None
    for _ in range(30_000):
        files, most = held(pids)
        if len(files) >= wanted and files == before:
            break
        before = files
        time.sleep(0.02)
    still = sum(files.values())
    peak = still
    for batch in batches:  # noqa: B007 - that one is held is the point
        now, count = held(pids)
        peak, most = max(peak, sum(now.values())), max(most, count)
    assert len(batch) == tensors
    return {"still": still, "peak": peak, "descriptors": most, "files": len(files)}


if __name__ == "__main__":
    print(json.dumps([watch(*shape) for shape in json.loads(sys.argv[1])]))
