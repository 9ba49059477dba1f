"""Planted: worker 2 of 4 waits four times as often for the same samples, however long each time."""

import time

from torch.utils.data import DataLoader, Dataset, get_worker_info


class Data(Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, index):
        for _ in range(4 if get_worker_info().id == 2 else 1):
            time.sleep(0.003)
        return index


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=8, num_workers=4):
        time.sleep(0.008)
