"""Learns the patterns of blankets without labels: groups of alike ones serve as labels.

Planted: before each epoch the groups are found anew, in a loop over all blankets in Python; the
loader, with a worker that augments the pictures, is fine.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, GROUPS = 28, 12


class Blankets(Dataset):
    def __init__(self, count):
        self.pictures = torch.rand(
            count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(83)
        )
        self.groups = torch.arange(count) % GROUPS

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = self.pictures[index]
        if torch.rand(()) < 0.5:
            picture = picture.flip(2)
        return picture + 0.05 * torch.randn_like(picture), self.groups[index]


class Grouping:
    """k-means, as a student wrote it."""

    def __init__(self, rounds):
        self.rounds = rounds

    def nearest(self, point, centres):
        best, place = float("inf"), 0
        for number, centre in enumerate(centres):
            apart = float(((point - centre) ** 2).sum())
            if apart < best:
                best, place = apart, number
        return place

    def find(self, points):
        centres = points[np.random.permutation(len(points))[:GROUPS]].copy()
        for _ in range(self.rounds):
            places = np.array([self.nearest(point, centres) for point in points])
            for number in range(GROUPS):
                if (places == number).any():
                    centres[number] = points[places == number].mean(0)
        return torch.from_numpy(places)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(128, GROUPS)

    def features(self, pictures):
        with torch.no_grad():
            return torch.cat([self.body(part) for part in pictures.split(64)]).numpy()

    def forward(self, pictures):
        return self.head(self.body(pictures))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="finds groups once")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(83)
    data, model, grouping = Blankets(1500), Net(), Grouping(rounds=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        if epoch == 0 or not args.without:
            data.groups = grouping.find(model.features(data.pictures))
        for x, y in DataLoader(data, batch_size=32, shuffle=True, num_workers=1):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
