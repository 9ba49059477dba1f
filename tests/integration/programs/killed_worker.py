"""A loop of which the second worker is ended by SIGKILL, as the kernel does without memory."""

import os
import signal

import torch
from torch.utils.data import DataLoader


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 14:  # of the fourth batch, which is worker 1's
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(8)


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=4, num_workers=2):
        pass
