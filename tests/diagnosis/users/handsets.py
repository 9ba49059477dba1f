"""Find scratches on handsets: few pictures, many short epochs, workers that are spawned."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Handsets(Dataset):
    def __init__(self):
        rng = np.random.default_rng(6)
        self.pictures = rng.integers(0, 255, (96, 72, 72, 3), np.uint8)
        self.labels = pd.Series(rng.integers(0, 2, 96), name="scratched")
        self.transform = transforms.Compose(
            [transforms.RandomHorizontalFlip(), transforms.RandomCrop(64), transforms.ToTensor()]
        )

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = self.transform(Image.fromarray(self.pictures[index]))
        return picture, int(self.labels[index])


def epoch(model, optimizer, loader):
    for pictures, scratched in loader:
        loss = nn.functional.cross_entropy(model(pictures), scratched)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the machine is shared
    model = nn.Sequential(
        nn.Conv2d(3, 24, 5, stride=2), nn.ReLU(), nn.Conv2d(24, 32, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(
        Handsets(), batch_size=16, shuffle=True, num_workers=args.workers,
        multiprocessing_context="spawn", persistent_workers=args.without,
    )  # fmt: skip
    begin = time.perf_counter()
    for _epoch in range(3):
        epoch(model, optimizer, loader)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
