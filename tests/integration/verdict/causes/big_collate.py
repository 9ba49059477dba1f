"""Planted: collating computes for 60 ms a batch, the samples for less than one."""

import time

from torch.utils.data import DataLoader, Dataset, default_collate


class Data(Dataset):
    def __len__(self):
        return 960  # for seconds, as workers of torch 2.2 may take one to start

    def __getitem__(self, index):
        return index


def collate(samples):
    until = time.thread_time() + 0.06
    while time.thread_time() < until:
        pass
    return default_collate(samples)


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=8, num_workers=2, collate_fn=collate):
        time.sleep(0.002)
