"""One short epoch with so many workers."""

import sys

from torch.utils.data import DataLoader, Dataset, _utils

# A busy machine may be slow to end so many: torch kills those that it has waited for.
_utils.MP_STATUS_CHECK_INTERVAL = 60.0


class Numbers(Dataset):
    def __init__(self):
        self.transform = str

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return self.transform(index)


if __name__ == "__main__":
    print(list(DataLoader(Numbers(), num_workers=int(sys.argv[1]), collate_fn=list)))
