"""Estimates harvests from radar pictures of fields, with five transforms.

Planted: of the transforms, the one against speckle takes medians of windows with NumPy, and costs
many times as much as the others together.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

FIELDS, SIDE, CUT, BATCH, STEP = 528, 72, 56, 24, 0.05


class Speckle:
    """Takes the speckle of radar away."""

    def __init__(self, size=7):
        self.size = size

    def __call__(self, picture):
        half = self.size // 2
        padded = np.pad(picture.numpy(), ((0, 0), (half, half), (half, half)), mode="reflect")
        windows = np.lib.stride_tricks.sliding_window_view(padded, (self.size, self.size), (1, 2))
        return torch.from_numpy(np.median(windows, axis=(3, 4)).astype(np.float32))


class Decibels:
    def __call__(self, picture):
        return 10 * torch.log10(picture.clamp(min=1e-4)) / 40


class Fields(Dataset):
    def __init__(self, speckle):
        rng = np.random.default_rng(1087)
        self.yields = rng.uniform(2, 9, FIELDS).astype(np.float32)
        self.pictures = torch.from_numpy(rng.gamma(4.0, 0.25, (64, 2, SIDE, SIDE))).float()
        if not speckle:  # done once, when the pictures came in
            self.pictures = torch.stack([Speckle()(picture) for picture in self.pictures])
        self.change = v2.Compose(
            [
                v2.RandomRotation(25),
                v2.RandomCrop(CUT),
                *([Speckle()] if speckle else []),
                Decibels(),
                v2.GaussianBlur(7),
                v2.RandomVerticalFlip(),
            ]
        )

    def __len__(self):
        return FIELDS

    def __getitem__(self, index):
        amount = self.yields[index]
        return self.change(self.pictures[index % len(self.pictures)] * float(amount)), amount


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(1087)
    torch.set_num_threads(1)
    data = Fields(speckle=not args.without)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv2d(2, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()
    )
    model.append(nn.Linear(128, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            error = 0.0
            for pictures, amounts in loader:
                loss = nn.functional.mse_loss(model(pictures).squeeze(1), amounts)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of a larger network on an accelerator
                error += loss.item()
            print(f"epoch {epoch}: error {error / len(loader):.2f}")
            torch.save(model.state_dict(), Path(folder, f"harvests-{epoch}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
