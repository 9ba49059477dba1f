"""Iterates graphs of PyTorch Geometric: in memory, one by one, in batches of any size."""

import torch
from shared import digest
from torch_geometric.data import Data, Dataset, InMemoryDataset
from torch_geometric.loader import DataLoader, DynamicBatchSampler, RandomNodeLoader
from torch_geometric.transforms import Compose, NormalizeFeatures, RandomJitter

EDGES = torch.tensor([[0, 1, 2], [1, 2, 3]])


def graph(number):
    values = torch.arange(4.0).reshape(4, 1) + number
    return Data(x=values, pos=values.repeat(1, 3), edge_index=EDGES, y=torch.tensor([number]))


class InMemory(InMemoryDataset):
    def __init__(self, transform=None):
        super().__init__(None, transform)
        self.data, self.slices = self.collate([graph(number) for number in range(10)])


class Single(Dataset):
    def len(self):
        return 10

    def get(self, index):
        return graph(index)


def loop(name, loader, epochs=1):
    for epoch in range(epochs):
        for batch in loader:
            parts = sorted(batch.to_dict().items())
            print(name, epoch, digest([part for part in parts if torch.is_tensor(part[1])]))


if __name__ == "__main__":
    torch.manual_seed(7)
    transform = Compose([RandomJitter(0.1), NormalizeFeatures()])
    for workers in (0, 2):
        common = {"num_workers": workers, "batch_size": 4}
        loop("memory", DataLoader(InMemory(transform), shuffle=True, **common), epochs=2)
        loop("single", DataLoader(Single(transform=transform), **common))
    subset = Single(transform=NormalizeFeatures())[:9]
    loop("nodes", DataLoader(subset, batch_sampler=DynamicBatchSampler(subset, 12, "node")))
    loop("list", DataLoader([graph(number) for number in range(5)], batch_size=2))
    loop("parts", RandomNodeLoader(graph(3), num_parts=2, shuffle=True))
    print(torch.rand(()).item())
