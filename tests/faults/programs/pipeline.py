"""A data set of numbers with a pipeline of transforms, for the programs beside it."""

from torch.utils.data import Dataset


class Add:
    def __init__(self, number):
        self.number = number

    def __call__(self, value):
        return value + self.number


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Numbers(Dataset):
    def __init__(self, size, transforms):
        self.size = size
        self.transform = Compose(transforms)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.transform(index)
