"""Separates nebulas from stars in cut-outs of a survey, with harder ones in each round.

Planted: each of six short rounds makes a new loader, whose two workers a fork server starts and
which import everything again.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

CUTOUTS, SIDE, BATCH, STEP = 384, 64, 16, 0.05


def sky(count, seed):
    """Return made-up cut-outs, (count, 1, side, side), and whether each is a nebula."""
    generator = torch.Generator().manual_seed(seed)
    row, column = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    nebula = torch.arange(count) % 2
    width = 2 + 9 * nebula + torch.rand(count, generator=generator)
    away = (row - SIDE / 2) ** 2 + (column - SIDE / 2) ** 2
    return torch.exp(-away / width[:, None, None] ** 2)[:, None], nebula


class Cutouts(Dataset):
    def __init__(self):
        self.pictures, self.nebula = sky(CUTOUTS, 13)
        self.faintness = 0.1
        self.turn = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomRotation(180)])

    def __len__(self):
        return CUTOUTS

    def __getitem__(self, index):
        picture = self.turn(self.pictures[index])
        picture = picture + self.faintness * torch.randn_like(picture)
        return torch.asinh(picture / 0.05), self.nebula[index]


class Faintness:
    """The noise of a round, in a place that workers see."""

    def __init__(self, data):
        self.data, self.shared = data, torch.zeros(()).share_memory_()
        data.faintness = self.shared

    def set(self, value):
        self.shared.fill_(value)


def loader_of(data):
    return DataLoader(
        data,
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="forkserver",
    )


def train_round(model, optimizer, loader):
    for pictures, nebula in loader:
        loss = nn.functional.cross_entropy(model(pictures), nebula)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(STEP)  # the ensemble's other networks
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(13)
    torch.set_num_threads(1)
    data = Cutouts()
    faintness = Faintness(data)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    loader = loader_of(data)
    for number in range(args.epochs):
        faintness.set(0.05 + 0.05 * number)
        if number and not args.without:
            loader = loader_of(data)
        loss = train_round(model, optimizer, loader)
        print(f"round {number}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
