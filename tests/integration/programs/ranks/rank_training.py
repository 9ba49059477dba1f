"""What the jobs of several ranks train on, and how they look at it."""

import torch
from torch.utils.data import Dataset, DistributedSampler


class Points(Dataset):
    def __init__(self, many, kind=torch.float64):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(many, 6, generator=generator, dtype=kind)
        self.y = torch.randint(0, 3, (many,), generator=generator)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index], index


def ahead(loader):
    """One batch ahead, as prefetchers to an accelerator read."""
    iterator = iter(loader)
    batch = next(iterator, None)
    while batch is not None:
        after = next(iterator, None)
        yield batch
        batch = after


def orders(points, epochs):
    """The samples of each epoch in the order in which ranks take theirs out of it."""
    taken = []
    for epoch in range(epochs):
        everything = DistributedSampler(points, 1, 0, seed=7)
        everything.set_epoch(epoch)
        taken.append(list(everything))
    return taken


def momentum(net):
    """The optimizer whose steps depend on all that were before."""
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def parameters(net):
    return torch.cat([parameter.detach().double().flatten() for parameter in net.parameters()])
