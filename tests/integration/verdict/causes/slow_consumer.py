"""Planted: the training step waits 100 times a batch, a worker 8 times, however long each."""

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
        for _ in range(100):
            time.sleep(0.002)
