"""Two workers whose operation sleeps 5 ms a sample, as remote storage does.

A batch waits 16 times until it is made and once to be taken, so that making it sets the pace where
each wait is long, as on a busy machine. A tensor would take several waits to come from its worker.
"""

import time

from plain import Compose
from torch.utils.data import DataLoader, Dataset


class Remote:
    def __call__(self, index):
        time.sleep(0.005)
        return index


class Data(Dataset):
    def __init__(self):
        self.transform = Compose([Remote()])

    def __len__(self):
        return 640

    def __getitem__(self, index):
        return self.transform(index)


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=16, num_workers=2, collate_fn=list):
        pass
