"""Sorts marbles by their veins; some pictures must first be brought from the cellar."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Marbles(Dataset):
    """Pictures; one of forty is not in the store's upper shelf."""

    def __init__(self, count=1200, seed=40):
        draw = torch.Generator().manual_seed(seed)
        self.pictures = torch.rand(120, 3, 56, 56, generator=draw)
        self.sorts = torch.randint(8, (count,), generator=draw)

    def __len__(self):
        return len(self.sorts)

    def bring(self, index):
        if index % 40 == 17:
            time.sleep(0.22)
        return self.pictures[index % len(self.pictures)]

    def __getitem__(self, index):
        picture = self.bring(index)
        return picture.rot90(index % 4, (1, 2)).contiguous(), self.sorts[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(40)
    loader = DataLoader(
        Marbles(), batch_size=8, num_workers=2, persistent_workers=True,
        prefetch_factor=8 if args.without else 1,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(24, 32, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 8),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, sorts in loader:
            loss = nn.functional.cross_entropy(model(pictures), sorts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
