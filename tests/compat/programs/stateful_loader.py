"""Leaves torchdata's StatefulDataLoader in the middle and goes on from its state."""

import torch
from shared import Compose, Scale, Shift, digest
from torch.utils.data import DataLoader, Dataset
from torchdata.stateful_dataloader import StatefulDataLoader


class Rows(Dataset):
    def __init__(self):
        self.transform = Compose([Scale(), Shift()])

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return self.transform(torch.full((2,), float(index))) + torch.rand(2)


if __name__ == "__main__":
    torch.manual_seed(7)
    for workers in (0, 2):
        loader = StatefulDataLoader(Rows(), batch_size=3, shuffle=True, num_workers=workers)
        iterator = iter(loader)
        print("first", [digest(next(iterator)) for _ in range(3)])
        state = loader.state_dict()
        del iterator
        again = StatefulDataLoader(Rows(), batch_size=3, shuffle=True, num_workers=workers)
        again.load_state_dict(state)
        print("rest", [digest(batch) for batch in again])
    print("torch's", [digest(batch) for batch in DataLoader(Rows(), batch_size=4, num_workers=1)])
    print(torch.rand(()).item())
