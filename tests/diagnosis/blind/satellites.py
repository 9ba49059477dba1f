"""Train on satellite tiles that a transform fetches from an object store."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset


class FetchTile:
    def __init__(self, latency):
        self.latency = latency

    def __call__(self, number):
        time.sleep(self.latency)
        return torch.full((4, 32, 32), number / 1000)


class Tiles(Dataset):
    def __init__(self, count, transform):
        self.count = count
        self.transform = transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(index), index % 7


def train(loader, epochs):
    for _ in range(epochs):
        for _tiles, _labels in loader:
            time.sleep(0.075)  # forward, backward and update on the device


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(
        Tiles(640, FetchTile(0.005)),
        batch_size=16,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=True,
    )
    begin = time.perf_counter()
    train(loader, 2)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
