"""As plain.py, with a worker and numbers, not tensors: torch's stand-in will do."""

import plain
from torch.utils.data import DataLoader


class Data(plain.Data):
    def __getitem__(self, index):
        return self.transform(float(index))


if __name__ == "__main__":
    print(sum(sum(batch) for batch in DataLoader(Data(), batch_size=8, num_workers=1)))
