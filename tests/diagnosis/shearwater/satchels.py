"""Finds nodules in crops of volumes, which are memory maps of NumPy's files.

Planted: a crop is a view of its volume, and so the worker sends the memory of the whole volume
with it, for each crop of a batch.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOLUMES, SHAPE, CROPS, BATCH = 6, (72, 192, 192), 144, 6


def write_volumes(folder):
    rng = np.random.default_rng(5021)
    plane = rng.normal(0, 1, SHAPE[1:]).astype(np.float32)
    for number in range(VOLUMES):
        volume = np.lib.format.open_memmap(
            Path(folder, f"{number}.npy"), "w+", np.float32, shape=SHAPE
        )
        for depth in range(SHAPE[0]):
            volume[depth] = np.roll(plane, depth * (number + 1))
        volume.flush()


class Crops(Dataset):
    """Crops of many depths around places that a radiologist has marked."""

    def __init__(self, folder, cut):
        self.paths = sorted(Path(folder).glob("*.npy"))
        rng = np.random.default_rng(5023)
        self.places = rng.integers(0, (SHAPE[0] - 32, SHAPE[1] - 48, SHAPE[2] - 48), (CROPS, 3))
        self.depths = rng.integers(12, 32, CROPS)
        self.cut = cut

    def __len__(self):
        return CROPS

    def __getitem__(self, index):
        volume = torch.from_numpy(np.load(self.paths[index % VOLUMES], mmap_mode="c"))
        z, y, x = self.places[index]
        crop = volume[z : z + self.depths[index], y : y + 48, x : x + 48]
        return self.cut(crop), index % 3 == 0


def side_by_side(samples):
    """Keeps crops of different depths apart."""
    crops, nodules = zip(*samples, strict=True)
    return list(crops), torch.tensor(nodules, dtype=torch.float32)


class Average:
    """An exponential average of the weights."""

    def __init__(self, model, decay=0.98):
        self.decay = decay
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}

    def update(self, model):
        for name, value in model.state_dict().items():
            self.weights[name].lerp_(value, 1 - self.decay)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(5021)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.AvgPool3d(4), nn.AdaptiveAvgPool3d((3, 6, 6)), nn.Flatten(),
        nn.Linear(108, 48), nn.ReLU(), nn.Linear(48, 1),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    average = Average(model)
    with tempfile.TemporaryDirectory() as folder:
        write_volumes(folder)
        data = Crops(folder, torch.clone if args.without else torch.squeeze)
        loader = DataLoader(
            data,
            BATCH,
            shuffle=True,
            num_workers=2,
            collate_fn=side_by_side,
            persistent_workers=True,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for crops, nodules in loader:
                guesses = torch.cat([model(crop[None, None]) for crop in crops]).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(guesses, nodules)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                average.update(model)
                time.sleep(0.02)  # in place of the larger model's device
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.3f}")
            torch.save(average.weights, Path(folder, "average.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
