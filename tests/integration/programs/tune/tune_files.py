"""A training that reads its samples from one file; prints how many came out wrong.

Arguments: how it reads them, how many workers it has, `call` to tune itself by `lotus.tune`.
"""

# ruff: noqa: SIM115 - open as long as the data set is
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

RECORD, COUNT = 4096, 320
HOW = sys.argv[1]


class Records(Dataset):
    def __init__(self, path):
        self.path, self.file, self.log = path, None, None
        if HOW in ("init", "pread", "log"):
            self.file = open(path, "rb", buffering=0)
        if HOW == "log":
            self.log = open("log", "w", buffering=1)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if HOW == "lazy" and self.file is None:
            self.file = open(self.path, "rb", buffering=0)
        start = index * RECORD
        if HOW in ("lazy", "init"):
            self.file.seek(start)
            time.sleep(0.002)  # meanwhile another process may seek
            data = self.file.read(RECORD)
        else:
            data = os.pread(self.file.fileno(), RECORD, start)
        if self.log is not None:
            self.log.write(f"{index}\n")
        time.sleep(0.001)
        return index, torch.frombuffer(bytearray(data), dtype=torch.int32)


class Stream(IterableDataset):
    """Its file is its iterator's, so that each worker has one of its own."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        with open(self.path, "rb", buffering=0) as file:
            for index in range(first, COUNT, step):
                file.seek(index * RECORD)
                time.sleep(0.002)
                yield index, torch.frombuffer(bytearray(file.read(RECORD)), dtype=torch.int32)


class Held(Stream):
    """Its file is the data set's own."""

    def __init__(self, path):
        self.file = open(path, "rb", buffering=0)

    def __iter__(self):
        for index in range(COUNT):
            self.file.seek(index * RECORD)
            time.sleep(0.002)
            yield index, torch.frombuffer(bytearray(self.file.read(RECORD)), dtype=torch.int32)


def main():
    with open("records", "wb") as file:
        for index in range(COUNT):
            file.write(torch.full((RECORD // 4,), index, dtype=torch.int32).numpy().tobytes())
    kind = {"stream": Stream, "held": Held}.get(HOW, Records)
    loader = DataLoader(kind("records"), batch_size=4, num_workers=int(sys.argv[2]))
    if "call" in sys.argv:
        import lotus

        next(iter(loader))  # what is opened on first use is open now
        result = lotus.tune(loader, budget=3)
        print("tried", result.settings_tried, result.best.num_workers, result.untried)
        loader = result.loader()
    wrong = seen = 0
    for index, data in loader:
        wrong += int((data != index[:, None].int()).any(1).sum())
        seen += len(index)
    print("seen", seen, "wrong", wrong)


if __name__ == "__main__":
    main()
