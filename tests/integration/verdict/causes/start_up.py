"""Planted: each worker waits 250 times to open its data, 32 times for its few batches."""

import time

from torch.utils.data import DataLoader, Dataset


def open_data(worker):
    for _ in range(250):
        time.sleep(0.008)


class Data(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.002)
        return index


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=8, num_workers=2, worker_init_fn=open_data):
        time.sleep(0.01)
