"""Two workers whose operation sleeps 5 ms a sample, as remote storage does."""

import time

from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose


class Remote:
    def __call__(self, index):
        time.sleep(0.005)
        return index


class Data(Dataset):
    def __init__(self):
        self.transform = Compose([Remote()])

    def __len__(self):
        return 320

    def __getitem__(self, index):
        return self.transform(index)


if __name__ == "__main__":
    for _ in DataLoader(Data(), batch_size=8, num_workers=2):
        pass
