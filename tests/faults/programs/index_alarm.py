"""A handler raises while the type of an index is looked at, which without lotus nobody does."""

import signal

from torch.utils.data import DataLoader, Dataset

LOOKED = []


class Late(OSError):
    pass


class Kind(type):
    @property
    def __module__(cls):
        LOOKED.append(cls)
        if len(LOOKED) == 1:
            signal.raise_signal(signal.SIGUSR1)
        return "mine"


class Index(metaclass=Kind):
    pass


class Numbers(Dataset):
    def __getitem__(self, index):
        return 1


def handler(number, frame):
    raise Late("mine")


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, handler)
    try:
        print(list(DataLoader(Numbers(), batch_size=None, sampler=[Index()])))
    except Late as error:
        print(error)
