"""Segments fruit in volumes of a scanner, from patches around voxels of the foreground.

Planted: for each patch, the sampler draws a voxel with np.random.choice and the weights of all
voxels, which it adds up anew each time, in the main process.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision.transforms import v2

VOLUMES, SIDE, PATCH, PATCHES, BATCH, STEP = 6, 64, 24, 576, 8, 0.015


def make_volumes():
    rng = np.random.default_rng(5059)
    values = rng.normal(0, 1, (VOLUMES, SIDE, SIDE, SIDE)).astype(np.float32)
    masks = np.zeros(values.shape, bool)
    for number in range(VOLUMES):
        first, second, third = rng.integers(8, SIDE - 24, 3)
        masks[number, first : first + 16, second : second + 16, third : third + 16] = True
    return values + masks, masks


class Foreground(Sampler):
    """Voxels of the fruit are drawn thirty times as often as others."""

    def __init__(self, masks, weights):
        self.shape = masks.shape[1:]
        self.chances = []
        for mask in masks:
            chances = np.where(mask, 30.0, 1.0).ravel()
            self.chances.append(chances / chances.sum())
        self.draw = self.from_table if weights == "table" else self.from_chances
        self.tables = [np.cumsum(chances) for chances in self.chances]

    def __len__(self):
        return PATCHES

    def from_chances(self, number):
        chances = self.chances[number]
        return np.random.choice(len(chances), p=chances)

    def from_table(self, number):
        table = self.tables[number]
        return min(np.searchsorted(table, np.random.random(), "right"), len(table) - 1)

    def __iter__(self):
        for _ in range(PATCHES):
            number = np.random.randint(len(self.chances))
            voxel = np.unravel_index(self.draw(number), self.shape)
            yield number, tuple(int(place) for place in voxel)


class Patches(Dataset):
    def __init__(self, values, masks):
        self.values, self.masks = torch.from_numpy(values), torch.from_numpy(masks)
        self.transform = v2.Compose(
            [v2.RandomHorizontalFlip(), v2.RandomVerticalFlip(), v2.GaussianNoise(0, 0.1, False)]
        )

    def __getitem__(self, index):
        number, voxel = index
        begins = [min(max(place - PATCH // 2, 0), SIDE - PATCH) for place in voxel]
        first, second, third = (slice(begin, begin + PATCH) for begin in begins)
        patch = self.values[number][first, second, third]
        return self.transform(patch)[None], self.masks[number][first, second, third].float().mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5059)
    torch.set_num_threads(1)
    np.random.seed(5059)
    values, masks = make_volumes()
    loader = DataLoader(
        Patches(values, masks),
        BATCH,
        sampler=Foreground(masks, "table" if args.without else "chances"),
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = nn.Sequential(
        nn.Conv3d(1, 8, 4, stride=4), nn.ReLU(), nn.Conv3d(8, 16, 3), nn.ReLU(),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    average = torch.optim.swa_utils.AveragedModel(model)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for patches, shares in loader:
            guess = model(patches).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(guess, shares)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            time.sleep(STEP)  # in place of the large network on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
