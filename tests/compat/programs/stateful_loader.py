"""Leaves torchdata's StatefulDataLoader in the middle and goes on from its state."""

import torch
from shared import Compose, Scale, Shift, digest
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader


class Rows(Dataset):
    def __init__(self):
        self.transform = Compose([Scale(), Shift()])
        self.made = 0

    def __len__(self):
        return 20

    def __getitem__(self, index):
        self.made += 1
        return self.transform(torch.full((2,), float(index))) + torch.rand(2)

    def state_dict(self):
        return {"made": self.made}

    def load_state_dict(self, state):
        self.made = state["made"]


class Stream(IterableDataset):
    """Its own iterator, which torchdata notices by identity."""

    def __init__(self):
        self.transform = Compose([Scale(), Shift()])
        self.next = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.next == 20:
            self.next = 0
            raise StopIteration
        self.next += 1
        return self.transform(torch.full((2,), float(self.next)))

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


def leave_and_go_on(data, **settings):
    """Three batches, then the state, then another loader that goes on from it for two epochs."""
    loader = StatefulDataLoader(data(), batch_size=3, **settings)
    iterator = iter(loader)
    print("first", [digest(next(iterator)) for _ in range(3)])
    state = loader.state_dict()
    print("state", digest(state))
    del iterator
    again = StatefulDataLoader(data(), batch_size=3, snapshot_every_n_steps=2, **settings)
    again.load_state_dict(state)
    print("rest", [digest(batch) for batch in again], digest(again.state_dict()))
    print("again", [digest(batch) for batch in again], digest(again.state_dict()))


if __name__ == "__main__":
    torch.manual_seed(7)
    leave_and_go_on(Rows, shuffle=True)
    leave_and_go_on(Rows, shuffle=True, num_workers=2, persistent_workers=True)
    leave_and_go_on(Rows, shuffle=True, num_workers=2, multiprocessing_context="spawn")
    leave_and_go_on(Stream)
    leave_and_go_on(Stream, num_workers=2)
    print("torch's", [digest(batch) for batch in DataLoader(Rows(), batch_size=4, num_workers=1)])
    print(torch.rand(()).item())
