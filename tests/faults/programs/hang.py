"""One operation of a worker never returns: the first it is asked for."""

import signal

from torch.utils.data import DataLoader, Dataset


class Resize:
    def __call__(self, value):
        return value


class Decode:
    def __call__(self, value):
        while value == 3:
            signal.pause()
        return value


class Compose:
    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Pictures(Dataset):
    def __init__(self):
        self.transform = Compose(Resize(), Decode(), Resize())

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.transform(index)


if __name__ == "__main__":
    for _ in DataLoader(Pictures(), batch_size=2, num_workers=2):
        pass
