"""Planted: each worker opens its data for two seconds before the first of a few batches."""

import time

from torch.utils.data import DataLoader, Dataset


def open_data(worker):
    time.sleep(2)


class Data(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.002)
        return index


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=8, num_workers=2, worker_init_fn=open_data):
        time.sleep(0.01)
