"""Learns which molecules of wax make sledges fast, from graphs with spectral positions.

Nothing planted: the accelerator's step sets the pace. Three spawned workers compute the spectral
positions of each graph anew ahead of it.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
from torchvision import transforms

GRAPHS, NODES, FEATURES, POSITIONS, BATCH, STEP = 960, 24, 9, 6, 24, 0.11


class AddPositions:
    """The first vectors of the graph's Laplacian, with random signs."""

    def __call__(self, graph):
        nodes, links = graph
        laplacian = np.diag(links.sum(1)) - links
        vectors = np.linalg.eigh(laplacian)[1][:, 1 : POSITIONS + 1]
        signs = np.random.choice([-1, 1], POSITIONS)
        return np.concatenate([nodes, vectors * signs], axis=1), links


class DropLinks:
    def __init__(self, share):
        self.share = share

    def __call__(self, graph):
        nodes, links = graph
        kept = np.triu(np.random.random(links.shape) > self.share)
        return nodes, links * (kept | kept.T)


class ToTensors:
    def __call__(self, graph):
        nodes, links = graph
        links = links + np.eye(NODES)
        links /= links.sum(1, keepdims=True)
        return torch.tensor(nodes, dtype=torch.float32), torch.tensor(links, dtype=torch.float32)


class Waxes(Dataset):
    def __init__(self, transform):
        rng = np.random.default_rng(5189)
        self.nodes = rng.normal(0, 1, (GRAPHS, NODES, FEATURES))
        links = np.triu(rng.random((GRAPHS, NODES, NODES)) < 0.15, 1)
        self.links = (links | links.transpose(0, 2, 1)).astype(np.float64)
        self.speeds = torch.tensor(self.nodes[:, :, 0].mean(1) + self.links.mean((1, 2))).float()
        self.transform = transform

    def __len__(self):
        return GRAPHS

    def __getitem__(self, index):
        return *self.transform((self.nodes[index], self.links[index])), self.speeds[index]


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.into = nn.Linear(FEATURES + POSITIONS, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, 1)

    def forward(self, nodes, links):
        hidden = self.into(nodes)
        for layer in self.layers:
            hidden = hidden + torch.relu(layer(links @ hidden))
        return self.out(hidden.mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5189)
    torch.set_num_threads(1)
    data = Waxes(transforms.Compose([DropLinks(0.1), AddPositions(), ToTensors()]))
    weights = 1 + data.speeds.abs()
    loader = DataLoader(
        data,
        BATCH,
        sampler=WeightedRandomSampler(weights, len(data)),
        num_workers=3,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for nodes, links, speeds in loader:
            loss = nn.functional.smooth_l1_loss(model(nodes, links), speeds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            time.sleep(STEP)  # in place of the large network on an accelerator
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
