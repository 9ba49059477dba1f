"""Outlines fumaroles on warm pictures of a volcano."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

SCENES, SIDE, BATCH = 60, 256, 12


def scene(rng):
    """A picture, and the runs of places inside and outside of vents, as the annotators' tool."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    vents = np.zeros((SIDE, SIDE), bool)
    for row, column, size in rng.integers(6, SIDE - 6, (9, 3)):
        vents |= (rows - row) ** 2 + (columns - column) ** 2 < (4 + size / 12) ** 2
    flat = vents.ravel()
    changes = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff(np.concatenate([[0], changes, [flat.size]])).tolist()
    warm = rng.integers(0, 120, (SIDE, SIDE)) + 100 * vents
    return warm.astype(np.uint8), runs if not flat[0] else [0, *runs]


def unrolled(runs):
    """The mask place by place."""
    mask, inside = [[0] * SIDE for _ in range(SIDE)], 0
    place = 0
    for run in runs:
        for _ in range(run):
            mask[place // SIDE][place % SIDE] = inside
            place += 1
        inside = 1 - inside
    return np.array(mask, np.uint8)


def repeated(runs):
    return np.repeat(np.arange(len(runs)) % 2, runs).astype(np.uint8).reshape(SIDE, SIDE)


class Scenes(Dataset):
    def __init__(self, samples, transform, mask_of):
        rng = np.random.default_rng(55)
        self.scenes = [scene(rng) for _ in range(SCENES)]
        self.samples, self.transform, self.mask_of = samples, transform, mask_of

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        warm, runs = self.scenes[index % SCENES]
        mask = tv_tensors.Mask(torch.from_numpy(self.mask_of(runs))[None])
        warm, mask = self.transform(tv_tensors.Image(warm[None]), mask)
        return warm, mask.float()


def network(channels=12):
    return nn.Sequential(
        nn.Conv2d(1, channels, 4, stride=4), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
        nn.Conv2d(channels, 16, 1), nn.PixelShuffle(4),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(55)
    torch.set_num_threads(1)
    transform = v2.Compose(
        [
            v2.RandomCrop(128),
            v2.RandomAffine(10, scale=(0.9, 1.1)),
            v2.RandomHorizontalFlip(),
            v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
        ]
    )
    loader = DataLoader(
        Scenes(960, transform, repeated if args.without else unrolled),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, masks in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(pictures), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
