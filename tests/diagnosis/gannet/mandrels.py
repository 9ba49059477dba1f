"""Learns to centre mandrels, from easy ones at first and from harder ones in later rounds.

Planted: each round makes a new loader for its part of the data, and with it two new workers, which
are spawned and import all that the script does.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, Subset
from torchvision.transforms import v2

SIDE, OPTIONS = 40, {"batch_size": 24, "num_workers": 2, "multiprocessing_context": "spawn"}


class Mandrels(Dataset):
    """Pictures, sorted by how hard they are."""

    def __init__(self, count):
        draw = torch.Generator().manual_seed(461)
        self.pictures = torch.rand(count, 1, SIDE, SIDE, generator=draw)
        self.transform = v2.Compose([v2.RandomRotation(8), v2.GaussianBlur(3)])

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = self.transform(self.pictures[index])
        return picture, picture.mean((0, 1))[:2]


class UpTo(Sampler):
    """Draws from the first samples; how many, is said before each round."""

    def __init__(self):
        self.most = 0

    def __len__(self):
        return self.most

    def __iter__(self):
        return iter(torch.randperm(self.most).tolist())


class Centre(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 5, stride=2), nn.ReLU(), nn.Conv2d(width, width, 5, stride=2),
            nn.ReLU(), nn.Flatten(), nn.Linear(width * 49, 2),
        )  # fmt: skip

    def forward(self, pictures):
        return self.body(pictures)


def rounds(mandrels, count, keep):
    """Yield a loader for each round, of more and more of the data."""
    sampler = UpTo()
    kept = DataLoader(mandrels, sampler=sampler, persistent_workers=True, **OPTIONS)
    for number in range(count):
        sampler.most = len(mandrels) * (number + 1) // count
        if keep:
            yield kept
        else:
            yield DataLoader(Subset(mandrels, range(sampler.most)), shuffle=True, **OPTIONS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(461)
    mandrels = Mandrels(480)
    model = Centre()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    begin = time.perf_counter()
    for number, loader in enumerate(rounds(mandrels, args.rounds, keep=args.without)):
        for pictures, centres in loader:
            loss = nn.functional.mse_loss(model(pictures), centres)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"round {number}: {len(loader)} batches, loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
