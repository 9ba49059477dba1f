"""Planted: three of 600 samples take half a second, the others a millisecond."""

import time

from torch.utils.data import DataLoader, Dataset

SLOW = (150, 301, 452)


class Data(Dataset):
    def __len__(self):
        return 600

    def __getitem__(self, index):
        time.sleep(0.5 if index in SLOW else 0.001)
        return index


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=10, num_workers=3):
        time.sleep(0.008)
