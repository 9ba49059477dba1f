"""Two workers whose operation sleeps 5 ms a sample, as remote storage does."""

import time

from torch.utils.data import DataLoader, Dataset


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


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
