"""Two epochs of ultralytics' InfiniteDataLoader, whose workers never end."""

import os

os.environ |= {"YOLO_OFFLINE": "true", "YOLO_CONFIG_DIR": os.getcwd()}

import torch
from torch.utils.data import Dataset
from ultralytics.data.build import InfiniteDataLoader


class Scale:
    def __call__(self, row):
        return row * 2


class Rows(Dataset):
    def __init__(self):
        self.transform = Scale()

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return self.transform(torch.full((3,), float(index)))


if __name__ == "__main__":
    loader = InfiniteDataLoader(dataset=Rows(), batch_size=4, num_workers=2)
    for epoch in range(2):
        for batch in loader:
            print(epoch, batch[:, 0].tolist())
