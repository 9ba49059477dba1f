"""Operations that know what they cost: argv is, by loader, how many workers, and how they start.

The batches, the errors and what is printed are the same every time; what each operation knows of
itself goes to $TRUTH: its loader, epoch, process, name, sample, thread CPU time (ns), page faults
and context switches, and the CPU time of threads or children that it started.
"""

import contextlib
import json
import mmap
import os
import resource
import sys
import threading
import time

from torch.utils.data import DataLoader, Dataset, IterableDataset

PAGES = 64
SAMPLES = 8


def used():
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    faults = usage.ru_minflt + usage.ru_majflt
    return time.thread_time_ns(), faults, usage.ru_nvcsw + usage.ru_nivcsw


def burn(ns, start=None):
    start = time.thread_time_ns() if start is None else start
    while time.thread_time_ns() - start < ns:
        pass
    return time.thread_time_ns() - start


class Known:
    def __call__(self, rows):
        before = used()
        helped = self.work()
        after = used()
        name = type(self).__name__
        rows.append((name, *(b - a for a, b in zip(before, after, strict=True)), helped))
        return rows


class Burn(Known):
    def work(self):
        burn(2_000_000)
        return 0


class Touch(Known):
    def work(self):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        with mmap.mmap(-1, PAGES * mmap.PAGESIZE, flags=flags) as pages:
            with contextlib.suppress(AttributeError, OSError):  # where there are no huge pages
                pages.madvise(mmap.MADV_NOHUGEPAGE)
            for page in range(PAGES):
                pages[page * mmap.PAGESIZE] = 1
        return 0


class Sleep(Known):
    def work(self):
        time.sleep(0.001)
        return 0


class Pool(Known):
    """Lets two threads work and waits for them."""

    def work(self):
        sums = []
        threads = [
            threading.Thread(target=lambda: sums.append(burn(3_000_000, 0))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(sums)


class Fork:
    """Returns in a child too, which ends outside of the operation."""

    def __call__(self, rows):
        before = used()
        self.child = os.fork()
        if not self.child:
            burn(20_000_000)
            return rows
        _, status = os.waitpid(self.child, 0)
        rows.append(("Fork", *(b - a for a, b in zip(before, used(), strict=True)), status))
        return rows


class Compose:
    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Data(Dataset):
    def __init__(self):
        self.transform = Compose(Burn(), Touch(), Sleep(), Pool(), Fork())

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        owner = os.getpid()
        rows = self.transform([])
        if os.getpid() != owner:
            os._exit(7)
        return [(owner, index, *row) for row in rows]


class Stream(IterableDataset):
    def __init__(self):
        self.data = Data()
        self.transform = self.data.transform

    def __iter__(self):
        for index in range(SAMPLES):
            yield self.data[index]


def iterate(number, workers, method):
    data = Stream() if method == "iterable" else Data()
    options = {"batch_size": 2, "collate_fn": list, "num_workers": workers}
    if workers:
        options["persistent_workers"] = method == "persistent"
    if method in ("spawn", "forkserver"):
        options["multiprocessing_context"] = method
    loader = DataLoader(data, **options)
    for epoch in range(1 + (method == "persistent")):
        for batch in loader:
            print(epoch, [(row[1], row[2], row[6] and "helped") for rows in batch for row in rows])
            yield from ((number, epoch, *row) for rows in batch for row in rows)


def main():
    truth = []
    for number, (workers, method) in enumerate(zip(sys.argv[1::2], sys.argv[2::2], strict=True)):
        truth += iterate(number, int(workers), method)
    with open(os.environ["TRUTH"], "w") as file:
        json.dump(truth, file)


if __name__ == "__main__":
    main()
