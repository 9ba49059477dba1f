"""Planted: worker 2 of 4 takes four times as long for the same samples."""

import time

from torch.utils.data import DataLoader, Dataset, get_worker_info


class Data(Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, index):
        time.sleep(0.012 if get_worker_info().id == 2 else 0.003)
        return index


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=8, num_workers=4):
        time.sleep(0.008)
