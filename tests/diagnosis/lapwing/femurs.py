"""Finds fractures of femurs in volumes of a scanner.

Planted: the first transform turns the scanner's small integers into numbers of 64 bits, with which
the others work, before the last one makes 32 bits of them.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

VOLUMES, SHAPE, CROP, BATCH, STEP = 96, (96, 192, 192), 64, 4, 0.05


class Window:
    """Brings the densities of bone to -1 to 1."""

    def __init__(self, low, high, kind):
        self.middle, self.half, self.kind = (low + high) / 2, (high - low) / 2, kind

    def __call__(self, volume):
        values = volume.astype(self.kind)
        values -= self.kind(self.middle)
        values /= self.kind(self.half)
        return np.clip(values, -1, 1, out=values)


class Gamma:
    def __call__(self, values):
        power = np.random.uniform(0.9, 1.1)
        return np.sign(values) * np.abs(values) ** values.dtype.type(power)


class Standardize:
    def __call__(self, values):
        return (values - values.mean()) / values.std()


class Crop:
    def __call__(self, values):
        first = [np.random.randint(size - CROP + 1) for size in values.shape]
        return values[tuple(slice(start, start + CROP) for start in first)]


class ToTensor:
    def __call__(self, values):
        return torch.from_numpy(np.ascontiguousarray(values)).float()[None]


class Femurs(Dataset):
    def __init__(self, transform):
        rng = np.random.default_rng(5167)
        self.volumes = rng.integers(-1000, 2000, (6, *SHAPE), dtype=np.int16)
        self.transform = transform

    def __len__(self):
        return VOLUMES

    def __getitem__(self, index):
        return self.transform(self.volumes[index % len(self.volumes)]), index % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5167)
    torch.set_num_threads(1)
    kind = np.float32 if args.without else np.float64
    steps = [Window(-200, 1300, kind), Gamma(), Standardize(), Crop(), ToTensor()]
    loader = DataLoader(
        Femurs(transforms.Compose(steps)),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = nn.Sequential(
        nn.Conv3d(1, 4, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool3d(2), nn.Flatten(),
        nn.Linear(32, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for volumes, broken in loader:
            loss = nn.functional.cross_entropy(model(volumes), broken)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the rest of it, on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
