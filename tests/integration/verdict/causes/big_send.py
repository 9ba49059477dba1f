"""Planted: a batch is many small Python objects, which the worker pickles into the pipe."""

import time

from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __init__(self):
        self.words = [[str(number), float(number)] for number in range(60_000)]

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return self.words


def collate(samples):
    return samples[0]


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=1, num_workers=1, collate_fn=collate):
        time.sleep(0.001)
