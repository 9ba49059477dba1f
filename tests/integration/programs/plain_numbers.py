"""As plain.py, with a worker and numbers, not tensors: torch's stand-in will do."""

from torch.utils.data import DataLoader, Dataset


class Scale:
    def __call__(self, value):
        return value * 2.0


class Shift:
    def __call__(self, value):
        return value + 1.0


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Data(Dataset):
    def __init__(self):
        self.transform = Compose([Scale(), Shift()])

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.transform(float(index))


if __name__ == "__main__":
    print(sum(sum(batch) for batch in DataLoader(Data(), batch_size=8, num_workers=1)))
