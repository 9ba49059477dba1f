"""Planted: the consumer takes 200 ms a batch, the workers a few."""

import time

from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        time.sleep(0.0002)
        return index


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=8, num_workers=2):
        time.sleep(0.2)
