"""A whole short program: without workers, with them, persistent ones too; prints what it gets."""

import os
import time

from torch.utils.data import DataLoader, Dataset


class Add:
    def __call__(self, value):
        time.sleep(0.002)
        return value + 1


class Numbers(Dataset):
    def __init__(self):
        self.transform = Add()

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return self.transform(index)


def main():
    for more in ({}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}):
        loader = DataLoader(Numbers(), batch_size=4, collate_fn=list, **more)
        for _ in range(2):
            for batch in loader:
                os.write(1, f"{batch}\n".encode())
    os.write(1, b"end\n")


if __name__ == "__main__":
    main()
