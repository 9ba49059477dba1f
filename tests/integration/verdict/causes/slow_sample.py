"""Planted: three of 600 samples wait 500 times, the others five times, however long each time."""

import time

from torch.utils.data import DataLoader, Dataset

SLOW = (150, 301, 452)


class Data(Dataset):
    def __len__(self):
        return 600

    def __getitem__(self, index):
        for _ in range(500 if index in SLOW else 5):
            time.sleep(0.001)
        return index


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=10, num_workers=3):
        for _ in range(25):
            time.sleep(0.001)
