"""Trains a small CNN on pictures of 32 x 32 with PyTorch's defaults: no workers, all threads.

    python tools/bench/tune/threads_train.py [--samples N] [--threads N]

torch uses as many threads as there are cores (or `--threads`), which compete with any workers. The
transforms of a sample take about 1 ms. promise.py tunes it and trains with it.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset

IMAGES = 512  # distinct ones
RESIZES = 6  # of each sample


class Pictures(Dataset):
    """Pictures in memory, resized back and forth."""

    def __init__(self, samples):
        self.samples = samples
        self.images = torch.randint(0, 256, (IMAGES, 3, 32, 32), dtype=torch.uint8)

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        image = self.images[index % IMAGES][None] / 255
        for _ in range(RESIZES):
            for size in (64, 32):
                image = interpolate(image, size=(size, size), mode="bilinear", antialias=True)
        return (image[0] - 0.5) / 0.25, index % 10


def model():
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(32, 10),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=6400)
    parser.add_argument("--threads", type=int, help="of torch (default: its own number)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    network, criterion = model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    loader = DataLoader(Pictures(options.samples), batch_size=32, shuffle=True)
    begun = time.time()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(network(images), labels)
        loss.backward()
        optimizer.step()
    took, count = time.time() - begun, options.samples
    print(
        f"epoch 0: loss {loss.item():.3f}, {count} images in {took:.1f} s, "
        f"{count / took:.1f} images/s"
    )


if __name__ == "__main__":
    main()
