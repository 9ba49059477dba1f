"""Learns from labelled and unlabelled pictures of bladder wrack at once.

Nothing is planted: a network that sees each unlabelled picture twice is the work. Two loaders, with
a worker each, are far ahead of it.
"""

import argparse
import time
from itertools import cycle

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = 4


class Wrack(Dataset):
    """Pictures of 40 by 40; those without labels come as two views."""

    def __init__(self, count, seed, labelled):
        draw = torch.Generator().manual_seed(seed)
        self.pictures = torch.rand(count, 3, 40, 40, generator=draw)
        self.labelled = labelled

    def __len__(self):
        return len(self.pictures)

    def view(self, picture):
        if torch.rand(1) < 0.5:
            picture = picture.flip(2)
        top, left = torch.randint(8, (2,)).tolist()
        return picture[:, top : top + 32, left : left + 32]

    def __getitem__(self, index):
        picture = self.pictures[index]
        if self.labelled:
            return self.view(picture), index % KINDS
        return self.view(picture), self.view(picture) + torch.randn(3, 32, 32) * 0.05


class Net(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.head = nn.Linear(width, KINDS)

    def forward(self, pictures):
        hidden = self.stem(pictures)
        for number, layer in enumerate(self.layers):
            hidden = hidden + layer(hidden.relu())
            if number % 2:
                hidden = nn.functional.avg_pool2d(hidden, 2)
        return self.head(hidden.mean((2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(59)
    labelled = DataLoader(
        Wrack(96, 1, True), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True
    )
    unlabelled = DataLoader(
        Wrack(640, 2, False), batch_size=20, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for (pictures, kinds), (weak, strong) in zip(cycle(labelled), unlabelled, strict=False):
            loss = nn.functional.cross_entropy(model(pictures), kinds)
            with torch.no_grad():
                chances, guesses = model(weak).softmax(1).max(1)
            each = nn.functional.cross_entropy(model(strong), guesses, reduction="none")
            loss = loss + (each * (chances > 0.6)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}, {(chances > 0.6).sum().item()} sure")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del labelled, unlabelled


if __name__ == "__main__":
    main()
