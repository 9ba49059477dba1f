"""Finds faults in lattices of printed metal, in slices of volumes that workers read.

Planted: the first of three workers also keeps a picture of each slice for the report, which takes
it several times as long as the slice; the loop waits for its batches.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torchvision.transforms import v2

SLICES, SIDE, FAULTS, BATCH, DRIVE, STEP = 360, 224, 3, 10, 0.005, 0.035


class Report:
    """The last slices that were seen, as pictures."""

    def __init__(self, size=8):
        self.size, self.pictures = size, []

    def add(self, pixels):
        file = io.BytesIO()
        enlarged = Image.fromarray(pixels).resize((2 * SIDE, 2 * SIDE), Image.Resampling.LANCZOS)
        enlarged.save(file, "png", optimize=True)
        self.pictures = [*self.pictures[1 - self.size :], file.getvalue()]


class Volumes(Dataset):
    """A base class for slices of volumes on a drive."""

    def __init__(self, report):
        rng = np.random.default_rng(83)
        volume = rng.normal(128, 30, (SIDE, SIDE)).cumsum(0).cumsum(1)
        self.volume = (volume % 256).astype(np.uint8)
        self.report = report

    def __len__(self):
        return SLICES

    def pixels(self, index):
        time.sleep(DRIVE)
        pixels = np.roll(self.volume, 7 * index, axis=index % 2)
        info = get_worker_info()
        if self.report is not None and (info is None or info.id == 0):
            self.report.add(pixels)
        return pixels


class Slices(Volumes):
    def __init__(self, report):
        super().__init__(report)
        rng = np.random.default_rng(89)
        self.faults = rng.integers(0, FAULTS, SLICES)
        self.transform = v2.Compose(
            [
                v2.RandomCrop(160),
                v2.RandomHorizontalFlip(),
                v2.Resize(96, antialias=True),
                v2.ToDtype(torch.float32, scale=True),
                v2.GaussianNoise(sigma=0.05),
            ]
        )

    def __getitem__(self, index):
        slice_ = torch.from_numpy(self.pixels(index).copy())[None]
        return self.transform(slice_), int(self.faults[index])


class Faults(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 5, stride=4)
        self.head = nn.Linear(8 * 23 * 23, FAULTS)

    def forward(self, slices):
        return self.head(self.conv(slices).relu().flatten(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(83)
    torch.set_num_threads(1)
    data = Slices(None if args.without else Report())
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=3, persistent_workers=True)
    model = Faults()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for slices, faults in loader:
            scores = model(slices)
            loss = nn.functional.cross_entropy(scores, faults)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a larger model on an accelerator
            right += (scores.argmax(1) == faults).sum().item()
        print(f"epoch {epoch}: right {right / SLICES:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
