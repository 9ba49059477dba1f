"""Two loaders whose operation is blocked: in a sleep; in a lock that its workers share."""

import multiprocessing
import time

from torch.utils.data import DataLoader, Dataset


class Sleep:
    def __call__(self, value):
        time.sleep(0.01)
        return value


class Lock:
    def __init__(self):
        self.lock = multiprocessing.Lock()

    def __call__(self, value):
        with self.lock:
            time.sleep(0.01)
        return value


class Numbers(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 480

    def __getitem__(self, index):
        return self.transform(index)


if __name__ == "__main__":
    for operation in (Sleep(), Lock()):
        for _ in DataLoader(Numbers(operation), batch_size=10, num_workers=2):
            pass
