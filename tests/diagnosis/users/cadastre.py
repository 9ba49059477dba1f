"""Classify aerial pictures of plots of land, which are augmented in full resolution."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder


def take_pictures(folder):
    rng = np.random.default_rng(8)
    for use in ("field", "forest", "town"):
        Path(folder, use).mkdir()
        for number in range(8):
            small = Image.fromarray(rng.integers(0, 255, (10, 15, 3), np.uint8))
            small.resize((768, 512)).save(Path(folder, use, f"{number}.jpg"))


class Data:
    """What a training of Lightning would call a data module."""

    def __init__(self, folder, shrink_first, workers):
        jitter = transforms.ColorJitter(0.3, 0.3, 0.3, 0.1)
        shrink = transforms.Resize((64, 64))
        steps = [shrink, jitter] if shrink_first else [jitter, shrink]
        steps += [transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        self.train = ImageFolder(folder, transforms.Compose(steps))
        self.workers = workers

    def train_dataloader(self):
        return DataLoader(
            self.train, 8, True, num_workers=self.workers, persistent_workers=self.workers > 0
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the machine is shared
    model = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    model.extend([nn.Flatten(), nn.Linear(16, 3)])
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with tempfile.TemporaryDirectory() as folder:
        take_pictures(folder)
        loader = Data(folder, args.without, args.workers).train_dataloader()
        begin = time.perf_counter()
        for _epoch in range(3):
            for pictures, uses in loader:
                loss = nn.functional.cross_entropy(model(pictures), uses)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
