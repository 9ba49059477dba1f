"""Grades pomegranates on a belt by pictures of three cameras; the network is on an accelerator.

Planted: what evens the contrast of the pictures is called for the whole batch in the main process,
after the workers are done with it, and the accelerator waits meanwhile.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

FRUITS, SIDE, GRADES, BATCH, STEP = 600, 160, 4, 24, 0.05


def stretch_contrast(pictures):
    """Brings each channel, between its percentiles, to one range."""
    values = pictures.numpy()
    low, middle, high = np.percentile(values, (2, 50, 98), axis=(-2, -1), keepdims=True)
    spread = np.maximum(high - low, 1e-3)
    values = np.tanh((values - middle) / spread)
    return torch.from_numpy(values.astype(np.float32))


class Fruits(Dataset):
    def __init__(self, transform):
        rng = np.random.default_rng(5023)
        self.pictures = rng.integers(0, 256, (24, 3, SIDE + 16, SIDE + 16), dtype=np.uint8)
        self.transform = transform

    def __len__(self):
        return FRUITS

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index % len(self.pictures)])
        return self.transform(picture), index % GRADES


class Batches:
    """Batches of a loader, ready for the device."""

    def __init__(self, loader, last):
        self.loader, self.last = loader, last

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for pictures, grades in self.loader:
            yield self.last(pictures), grades


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5023)
    torch.set_num_threads(1)
    steps = [
        v2.RandomCrop(SIDE),
        v2.RandomHorizontalFlip(),
        v2.RandomVerticalFlip(),
        v2.ToDtype(torch.float32, scale=True),
    ]
    if args.without:
        steps.append(v2.Lambda(stretch_contrast))
    data = Fruits(v2.Compose(steps))
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    batches = Batches(loader, nn.Identity() if args.without else stretch_contrast)
    model = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(300, GRADES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for number, (pictures, grades) in enumerate(batches):
            loss = nn.functional.cross_entropy(model(pictures), grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the rest of the network, on the accelerator
            if number % 10 == 9:
                print(f"epoch {epoch}, {number + 1} of {len(batches)}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del batches, loader


if __name__ == "__main__":
    main()
